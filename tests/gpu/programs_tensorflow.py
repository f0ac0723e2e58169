"""Programs of the ladder: TensorFlow, and Keras on it. They are left out where their packages are missing; PYTHONPATH=SITE brings along what this has installed. TensorFlow finds NVIDIA's libraries beside itself, so all of them lie in one SITE, and SITE comes first in PYTHONPATH:

pip install --no-deps --target SITE tensorflow==2.21.0 keras==3.15.1 absl-py==2.5.1 astunparse==1.6.3 flatbuffers==25.12.19 gast==0.7.0 google-pasta==0.2.0 grpcio==1.84.0 h5py==3.14.0 markdown-it-py==4.3.0 mdurl==0.1.2 ml-dtypes==0.5.4 namex==0.1.0 opt-einsum==3.4.0 optree==0.20.0 packaging==26.4 protobuf==7.36.2 pygments==2.21.0 rich==15.0.0 six==1.17.0 termcolor==3.3.0 typing-extensions==4.16.0 wrapt==2.2.2 nvidia-cublas-cu12==12.5.3.2 nvidia-cuda-cupti-cu12==12.9.79 nvidia-cuda-nvcc-cu12==12.9.86 nvidia-cuda-nvrtc-cu12==12.9.86 nvidia-cuda-runtime-cu12==12.9.79 nvidia-cudnn-cu12==9.3.0.75 nvidia-cufft-cu12==11.4.1.4 nvidia-cusolver-cu12==11.6.3.83 nvidia-cusparse-cu12==12.5.1.3 nvidia-nccl-cu12==2.27.7 nvidia-nvjitlink-cu12==12.9.86
"""

from programs_carried import needs


def folder_of_nvidia(name):
    """Where a package of NVIDIA lies."""
    import os
    from importlib.util import find_spec
    folders = [os.path.join(place, name) for place in find_spec("nvidia").submodule_search_locations]
    return next(folder for folder in folders if os.path.isdir(folder))


def tensorflow_ready(**environment):
    """TensorFlow takes memory as it needs it, uses kernels that always add in the same order, and rounds no float32 to fewer bits."""
    import ctypes
    import os
    # XLA looks for the assembler and for NVIDIA's bitcode in this folder.
    compiler = folder_of_nvidia("cuda_nvcc")
    # TensorFlow 2.21 looks for every library of NVIDIA beside itself but this one.
    ctypes.CDLL(os.path.join(folder_of_nvidia("cusolver"), "lib", "libcusolver.so.11"))
    flags = f"--xla_gpu_cuda_data_dir={compiler} --xla_gpu_autotune_level=0"
    os.environ.update(XLA_FLAGS=flags, TF_CPP_MIN_LOG_LEVEL="2", KERAS_BACKEND="tensorflow", **environment)
    os.environ["PATH"] = f"{compiler}/bin:{os.environ.get('PATH', '')}".rstrip(":")
    import numpy
    import tensorflow as tf
    cards = tf.config.list_physical_devices("GPU")
    assert len(cards) == 1, cards
    tf.config.experimental.set_memory_growth(cards[0], True)
    tf.config.experimental.enable_tensor_float_32_execution(False)
    tf.config.experimental.enable_op_determinism()
    tf.keras.utils.set_random_seed(7)
    return tf, numpy.random.default_rng(7)


def normal(tf, random, *shape, dtype="float32"):
    return tf.cast(tf.constant(random.normal(size=shape)), dtype)


def from_card(*tensors):
    """The tensors' numbers; each must have been made on the card."""
    found = []
    for tensor in tensors:
        assert "GPU" in tensor.device, tensor.device
        array = tensor.numpy()
        found.append(array.astype("float32") if array.dtype.name == "bfloat16" else array)
    return found


def weights_of(model):
    return from_card(*(variable.value for variable in model.trainable_variables))


@needs("tensorflow")
def tensorflow_products_and_sums():
    tf, random = tensorflow_ready()
    found = []
    for kind in ("float32", "float64", "bfloat16"):
        a, b = normal(tf, random, 192, 256, dtype=kind), normal(tf, random, 256, 160, dtype=kind)
        batches, others = normal(tf, random, 6, 64, 96, dtype=kind), normal(tf, random, 6, 48, 96, dtype=kind)
        found += [a @ b, tf.matmul(batches, others, transpose_b=True), tf.einsum("bij,bkj->ik", batches, others), tf.linalg.matvec(a, b[:, 0])]
        found += [tf.reduce_sum(a, 0), tf.reduce_max(a, 1), tf.nn.softmax(a), tf.math.log1p(tf.abs(b)), tf.tanh(a) * tf.sigmoid(a)]
    a = normal(tf, random, 64, 96)
    turned = tf.complex(a, tf.reverse(a, [0]))
    product = tf.matmul(turned, turned, adjoint_b=True)
    found += [tf.math.real(product), tf.math.imag(product), tf.math.reduce_std(a, 1), tf.argmax(a, 1), tf.reduce_logsumexp(a, 0)]
    found += [tf.cumsum(a, 1), tf.transpose(a), tf.tile(a, [2, 3]), tf.random.stateless_normal([512], [1, 2]), tf.random.stateless_uniform([512], [3, 4])]
    return from_card(*found)


@needs("tensorflow")
def tensorflow_loops_and_gradients():
    """Functions that become graphs: a loop whose gradient is taken, branches, and an optimizer."""
    tf, random = tensorflow_ready()
    weight, bias = tf.Variable(normal(tf, random, 64, 64) / 8), tf.Variable(tf.zeros([64]))
    x, target = normal(tf, random, 32, 64), normal(tf, random, 32, 64)
    rate = tf.constant(0.05)

    def forward(x, turns):
        def again(turn, x):
            y = tf.tanh(x @ weight + bias)
            return turn + 1, tf.cond(tf.reduce_mean(y) > 0, lambda: y * 0.9, lambda: y + 0.1 * x)
        return tf.while_loop(lambda turn, x: turn < turns, again, (tf.constant(0), x))[1]

    @tf.function
    def learn(turns):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(forward(x, turns) - target))
        for variable, gradient in zip((weight, bias), tape.gradient(loss, (weight, bias))):
            variable.assign_sub(rate * gradient)
        return loss

    @tf.function
    def powers(start, count):
        kept = tf.TensorArray(tf.float32, size=count)
        for turn in tf.range(count):
            start = start @ weight
            start /= tf.norm(start)
            kept = kept.write(turn, tf.reduce_sum(start, 1))
        return kept.stack()

    losses = [learn(tf.constant(turns)) for turns in (3, 5, 5, 8, 3)]
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            energy = tf.reduce_sum(tf.sin(x) * x)
        slope = inner.gradient(energy, x)
    return from_card(*losses, weight.value(), bias.value(), powers(x, tf.constant(6)), slope, outer.gradient(slope, x))


@needs("tensorflow")
def keras_convolutions_learn():
    """cuDNN's convolutions, their gradients, batch normalization and pooling, in graphs of TensorFlow."""
    tf, random = tensorflow_ready()
    layers = tf.keras.layers
    model = tf.keras.Sequential([
        layers.Input((32, 32, 3)), layers.Conv2D(16, 3, padding="same", use_bias=False), layers.BatchNormalization(), layers.ReLU(), layers.MaxPooling2D(),
        layers.Conv2D(32, 3, strides=2, activation="relu"), layers.DepthwiseConv2D(3), layers.Conv2D(32, 1, activation="gelu"),
        layers.Conv2DTranspose(16, 2, strides=2), layers.GlobalAveragePooling2D(), layers.Dropout(0.2), layers.Dense(10)])
    model.compile(tf.keras.optimizers.Adam(3e-3), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    pictures, labels = random.normal(size=(64, 32, 32, 3)).astype("float32"), random.integers(0, 10, 64)
    losses = model.fit(pictures, labels, batch_size=16, epochs=3, shuffle=False, verbose=0).history["loss"]
    return [losses, *from_card(model(tf.constant(pictures[:8]))), *weights_of(model)]


@needs("tensorflow")
def tensorflow_compiled_by_xla():
    """XLA compiles a step of training, with attention and a loop, to kernels of its own."""
    tf, random = tensorflow_ready()
    shapes = ((64, 192), (64, 64), (64, 256), (256, 64))
    variables = [tf.Variable(normal(tf, random, *shape) / 8) for shape in shapes]
    x, target = normal(tf, random, 4, 32, 64), normal(tf, random, 4, 32, 64)

    def block(x):
        enter, leave, wide, narrow = variables
        q, k, v = (tf.reshape(part, [4, 32, 4, 16]) for part in tf.split(x @ enter, 3, axis=-1))
        weights = tf.nn.softmax(tf.einsum("bihd,bjhd->bhij", q, k) / 4)
        x += tf.reshape(tf.einsum("bhij,bjhd->bihd", weights, v), [4, 32, 64]) @ leave
        x -= tf.reduce_mean(x, -1, keepdims=True)
        x *= tf.math.rsqrt(tf.reduce_mean(x * x, -1, keepdims=True) + 1e-5)
        return x + tf.nn.gelu(x @ wide) @ narrow

    @tf.function(jit_compile=True)
    def learn(x, target):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(block(x) - target))
        for variable, gradient in zip(variables, tape.gradient(loss, variables)):
            variable.assign_sub(0.05 * gradient)
        return loss

    @tf.function(jit_compile=True)
    def settle(x):
        found = tf.while_loop(lambda turn, x: (turn < 20) & (tf.reduce_max(tf.abs(x)) > 1e-3), lambda turn, x: (turn + 1, x * 0.7 - 0.01 * tf.sin(x)), (0, x))
        return found[1], tf.sort(x, axis=-1), tf.cumsum(x, 1), tf.argmax(x, -1)

    losses = [learn(x, target) for _ in range(6)]
    return from_card(*losses, block(x), *settle(x), *(variable.value() for variable in variables))


@needs("tensorflow")
def keras_recurrences():
    """cuDNN's LSTM and GRU, with gradients; the bidirectional one reads masked sequences."""
    tf, random = tensorflow_ready()
    layers = tf.keras.layers
    text = layers.Input((20,), dtype="int32")
    x = layers.Embedding(50, 32)(text)
    x = layers.Bidirectional(layers.LSTM(32, return_sequences=True, use_cudnn=True))(x)
    x = layers.GRU(48, return_sequences=True, reset_after=True, use_cudnn=True)(x)
    model = tf.keras.Model(text, layers.Dense(5)(layers.LSTM(24, use_cudnn=True)(x)))
    model.compile(tf.keras.optimizers.SGD(0.1), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    words, labels = random.integers(1, 50, (32, 20)).astype("int32"), random.integers(0, 5, 32)
    losses = [float(model.train_on_batch(words, labels)) for _ in range(5)]
    return [losses, *from_card(model(tf.constant(words))), *weights_of(model)]


@needs("tensorflow")
def tensorflow_transforms_and_factors():
    """cuFFT, cuSOLVER and cuBLAS's solvers."""
    tf, random = tensorflow_ready()
    wave, picture = normal(tf, random, 4, 1024), normal(tf, random, 3, 64, 64)
    spectrum, plane = tf.signal.rfft(wave), tf.signal.fft2d(tf.complex(picture, -picture))
    short = tf.signal.stft(wave, frame_length=256, frame_step=64)
    found = [tf.abs(spectrum), tf.signal.irfft(spectrum), tf.math.real(plane), tf.math.imag(tf.signal.ifft2d(plane)), tf.abs(short)]
    found += [tf.signal.irfft2d(tf.signal.rfft2d(picture)), tf.math.real(tf.signal.fft(tf.cast(tf.complex(wave, wave), "complex128")))]
    for kind in ("float32", "float64"):
        a, right = normal(tf, random, 2, 48, 48, dtype=kind), normal(tf, random, 2, 48, 3, dtype=kind)
        whole = tf.matmul(a, a, transpose_b=True) + tf.eye(48, dtype=kind)
        lower, (q, r), (s, u, v) = tf.linalg.cholesky(whole), tf.linalg.qr(a), tf.linalg.svd(a)
        values, vectors = tf.linalg.eigh(whole)
        found += [lower, q, r, s, tf.matmul(u * s[:, None], v, transpose_b=True), values, tf.abs(vectors)]
        found += [tf.linalg.solve(whole, right), tf.linalg.triangular_solve(lower, right), tf.linalg.cholesky_solve(lower, right), tf.linalg.inv(whole), tf.linalg.slogdet(whole)[1]]
    return from_card(*found)


@needs("tensorflow")
def tensorflow_segments_and_lookups():
    """Embeddings with sparse gradients, sums by segments, sorts, and results whose size only the card knows."""
    tf, random = tensorflow_ready()
    table = tf.Variable(normal(tf, random, 500, 48))
    words = tf.constant(random.integers(0, 500, (16, 24)).astype("int32"))
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.nn.embedding_lookup(table, words)))
    tf.keras.optimizers.Adam(0.01).apply_gradients([(tape.gradient(loss, table), table)])
    rows, places = normal(tf, random, 400, 32), tf.constant(random.integers(0, 37, 400).astype("int32"))
    found = [loss, table.value(), tf.math.unsorted_segment_sum(rows, places, 37), tf.math.unsorted_segment_max(rows, places, 37)]
    found += [tf.math.segment_sum(rows, tf.sort(places)), tf.scatter_nd(places[:, None], rows, [37, 32]), tf.tensor_scatter_nd_max(rows, places[:5, None], rows[5:10])]
    found += [tf.sort(rows, direction="DESCENDING"), tf.argsort(rows, 0), *tf.math.top_k(rows, 5), tf.gather(rows, places, axis=0), tf.one_hot(places, 37)]
    found += [tf.where(rows > 1.5), tf.boolean_mask(rows, rows[:, 0] > 0), tf.gather_nd(rows, tf.where(rows < -1.5))]
    return from_card(*found)


@needs("tensorflow")
def keras_mixed_precision():
    """A transformer with weights of 32 bits and products of 16."""
    tf, random = tensorflow_ready()
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    layers = tf.keras.layers
    start = x = layers.Input((32, 64))
    for _ in range(2):
        normed = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(4, 16)(normed, normed, use_causal_mask=True)])
        x = layers.Add()([x, layers.Dense(64)(layers.Dense(256, activation="gelu")(layers.LayerNormalization()(x)))])
    model = tf.keras.Model(start, layers.Dense(8, dtype="float32")(layers.GlobalAveragePooling1D()(x)))
    model.compile(tf.keras.optimizers.AdamW(1e-3), "mse", jit_compile=False)
    x, y = random.normal(size=(16, 32, 64)).astype("float32"), random.normal(size=(16, 8)).astype("float32")
    losses = [float(model.train_on_batch(x, y)) for _ in range(5)]
    return [losses, *from_card(model(tf.constant(x)))]


@needs("tensorflow")
def tensorflow_memory_from_pools():
    """The driver's pools give out the memory, in order of the stream; sizes change all the time."""
    tf, random = tensorflow_ready(TF_GPU_ALLOCATOR="cuda_malloc_async")
    found = []
    for turn in range(12):
        size = 64 + 97 * turn
        a = normal(tf, random, size, 128)
        b = tf.concat([a, a * 2], 1)
        found.append(tf.reduce_sum(tf.nn.relu(tf.matmul(b, b, transpose_b=True)) + tf.ones([size, size]), 0))
        large = tf.fill([1024, 1024, turn + 1], 0.5)
        found.append(tf.reduce_sum(large, [0, 1]))
    return from_card(*found)


@needs("tensorflow")
def tensorflow_pictures():
    """TensorFlow's own kernels for pictures, and convolutions of other kinds, with gradients."""
    tf, random = tensorflow_ready()
    pictures = tf.nn.sigmoid(normal(tf, random, 2, 40, 48, 3))
    boxes = tf.constant([[0.1, 0.1, 0.7, 0.9], [0.2, 0.0, 1.0, 0.6]])
    found = [tf.image.resize(pictures, [64, 30]), tf.image.resize(pictures, [20, 20], method="nearest"), tf.image.rgb_to_hsv(pictures)]
    found += [tf.image.crop_and_resize(pictures, boxes, [0, 1], [16, 16]), tf.image.adjust_saturation(pictures, 1.5), tf.image.sobel_edges(pictures), tf.nn.space_to_depth(pictures, 4)]
    wide, narrow, separate = normal(tf, random, 3, 3, 3, 8), normal(tf, random, 1, 1, 6, 8), normal(tf, random, 3, 3, 3, 2)
    with tf.GradientTape() as tape:
        tape.watch((wide, narrow, separate, pictures))
        y = tf.nn.conv2d(pictures, wide, 1, "SAME", dilations=2)
        z = tf.nn.separable_conv2d(pictures, separate, narrow, [1, 1, 1, 1], "SAME")
        y = tf.nn.local_response_normalization(tf.nn.max_pool2d(tf.nn.elu(y + z), 3, 2, "SAME"))
        loss = tf.reduce_sum(tf.square(tf.nn.avg_pool2d(y, 2, 2, "VALID")))
    return from_card(*found, y, loss, *tape.gradient(loss, (wide, narrow, separate, pictures)))
