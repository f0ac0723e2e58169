"""Programs of the ladder: frameworks that bring their own compiler or their own kernels. They are left out where their packages are missing; PYTHONPATH=SITE brings along what this has installed:

pip install --no-deps --target SITE tinygrad==0.14.0 diffusers==0.42.1 importlib-metadata==10.2.0 zipp==4.1.2 ultralytics==8.4.190 ultralytics-thop==2.2.3 ultralytics-platform==0.1.99 open-clip-torch==3.3.0 ftfy==6.3.1 wcwidth==0.9.4 segmentation-models-pytorch==0.6.0 mlx==0.32.4 mlx-cuda-13==0.32.4 catboost==1.2.10 cuequivariance==0.13.0 cuequivariance-torch==0.13.0 cuequivariance-ops-torch-cu13==0.13.0 cuequivariance-ops-cu13==0.13.0 platformdirs==4.14.8
pip install --no-deps --target ANOTHER mujoco==4.0.0 mujoco-core==4.0.0 glfw==2.11.0 mujoco-warp==4.0.0 warp-lang==1.19.0
"""

from programs_carried import needs
from programs_ready import seeded, torch_ready


def toolkit():
    """The folder of CUDA whose headers these compile with: nvcc's, or that of NVIDIA's packages."""
    import os
    import shutil
    from importlib.util import find_spec
    compiler = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    folders = [os.path.dirname(os.path.dirname(os.path.realpath(compiler)))]
    folders += [os.path.join(place, "cu13") for place in find_spec("nvidia").submodule_search_locations]
    return next(folder for folder in folders if os.path.exists(os.path.join(folder, "include", "cuda_fp16.h")))


def folder_of_library(name):
    """Where the loader finds a library."""
    import ctypes
    import os
    ctypes.CDLL(name)
    with open("/proc/self/maps") as maps:
        # The file has the driver's version in its name, where a link led to it.
        return next(os.path.dirname(line.split()[-1]) for line in maps if f"/{name.removesuffix('.1')}." in line)


# --- tinygrad: the driver by ctypes, NVRTC, and graphs made node by node


def tinygrad_ready():
    """It looks for its libraries in folders, and reads the environment when it is imported."""
    import ctypes
    import os
    from glob import glob
    from importlib.util import find_spec
    found = [path for place in find_spec("nvidia").submodule_search_locations for path in glob(f"{place}/cu13/lib/libnvrtc*.so.13*")]
    os.environ.update(DEV="CUDA", BEAM="0", CACHELEVEL="0", PARALLEL="0", CUDA_PATH=toolkit())
    for path in found:
        if "builtins.so" in path:
            # The compiler looks for this one where it does not lie.
            ctypes.CDLL(path)
        elif path.endswith("libnvrtc.so.13"):
            os.environ["NVRTC_PATH"] = path
    driver = folder_of_library("libcuda.so.1")
    os.environ["LD_LIBRARY_PATH"] = f"{driver}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
    import numpy
    import tinygrad
    tinygrad.Tensor.manual_seed(7)
    assert tinygrad.Device.DEFAULT == DEVICE_OF_TINYGRAD, tinygrad.Device.DEFAULT
    return tinygrad, numpy.random.default_rng(7)


DEVICE_OF_TINYGRAD = "CUDA"


def tinygrad_tensor(tinygrad, random, *shape):
    return tinygrad.Tensor(random.normal(size=shape).astype("float32"))


@needs("tinygrad")
def tinygrad_sums_and_products():
    tinygrad, random = tinygrad_ready()
    a, b = tinygrad_tensor(tinygrad, random, 192, 256), tinygrad_tensor(tinygrad, random, 256, 160)
    product = (a @ b).realize()
    assert abs(product.numpy() - a.numpy() @ b.numpy()).max() < 1e-2
    found = [product, a.sum(axis=0), a.max(axis=1), a.std(axis=1), a.softmax(axis=-1), a.log_softmax(axis=0), a.argmax(axis=1), a.cumsum(axis=1), (product.abs() + 1).log().mean()]
    values, order = a[:8].sort(dim=1)
    whole = (a * 100).cast("int32")
    found += [values, order, (whole % 7).sum(axis=0), (whole ^ 21).max(axis=1)]
    return [part.numpy() for part in found]


@needs("tinygrad")
def tinygrad_convolutions_and_gradients():
    tinygrad, random = tinygrad_ready()
    x, weight, bias = (tinygrad_tensor(tinygrad, random, *shape) for shape in ((2, 8, 32, 32), (16, 8, 3, 3), (16,)))
    for part in (x, weight, bias):
        part.requires_grad = True
    out = x.conv2d(weight, bias, stride=2, padding=1).gelu().max_pool2d(2).layernorm()
    grouped = x.conv2d(weight[:8, :2], groups=4, dilation=2).avg_pool2d(2)
    (out.square().mean() + grouped.square().mean()).backward()
    return [part.numpy() for part in (out, grouped, x.grad, weight.grad, bias.grad)]


@needs("tinygrad")
def tinygrad_products_of_halves():
    """Products that its compiler gives to the tensor cores, for two kinds of numbers."""
    tinygrad, random = tinygrad_ready()
    found = []
    for kind in (tinygrad.dtypes.float16, tinygrad.dtypes.bfloat16):
        a, b = (tinygrad_tensor(tinygrad, random, 128, 128).cast(kind).realize() for _ in range(2))
        found += [a.matmul(b, dtype=tinygrad.dtypes.float32), (a @ b).cast(tinygrad.dtypes.float32)]
        q, k, v = (tinygrad_tensor(tinygrad, random, 2, 4, 32, 64).cast(kind).realize() for _ in range(3))
        found.append(q.scaled_dot_product_attention(k, v, is_causal=True).cast(tinygrad.dtypes.float32))
    return [part.numpy() for part in found]


@needs("tinygrad")
def tinygrad_network_that_learns():
    """A step of training that becomes a graph, whose nodes get new inputs each turn."""
    tinygrad, random = tinygrad_ready()
    from tinygrad import helpers, nn

    class Network:
        def __init__(self):
            self.first, self.second = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 16, 3, stride=2)
            self.norm, self.last = nn.BatchNorm(16), nn.Linear(16 * 6 * 6, 10)

        def __call__(self, x):
            return self.last(self.norm(self.second(self.first(x).relu())).relu().flatten(1))

    network = Network()
    optimizer = nn.optim.Adam(nn.state.get_parameters(network), lr=3e-3)

    @tinygrad.TinyJit
    def step(x, targets):
        optimizer.zero_grad()
        loss = network(x).sparse_categorical_crossentropy(targets).backward()
        return loss.realize(*optimizer.schedule_step())

    losses, kept = [], []
    with helpers.Context(TRAINING=1):
        for _ in range(7):
            x = tinygrad_tensor(tinygrad, random, 16, 1, 16, 16).realize()
            targets = tinygrad.Tensor(random.integers(0, 10, 16).astype("int32")).realize()
            kept.append((x, targets))
            losses.append(step(x, targets).numpy().reshape(1))
    assert step.captured is not None
    return losses + [part.numpy() for part in nn.state.get_parameters(network)]


# --- MLX: kernels of its own, NVRTC, cuBLASLt, cuDNN, and graphs of everything that it does


def mlx_ready():
    """PyTorch brings the libraries that MLX links to."""
    import os
    torch_ready()
    os.environ.setdefault("CUDA_HOME", toolkit())
    import mlx.core as mx
    import numpy
    mx.random.seed(7)
    return mx, numpy.random.default_rng(7)


def mlx_array(mx, random, *shape, dtype=None):
    return mx.array(random.normal(size=shape).astype("float32")).astype(dtype or mx.float32)


def mlx_results(mx, parts):
    """Arrays of NumPy, which has no bfloat16."""
    import numpy
    mx.eval(*parts)
    found = []
    for part in parts:
        found += [numpy.array(half) for half in (mx.real(part), mx.imag(part))] if part.dtype == mx.complex64 else [numpy.array(part.astype(mx.float32))]
    return found


@needs("mlx")
def mlx_products_and_reductions():
    mx, random = mlx_ready()
    found = []
    for kind in (mx.float32, mx.float16, mx.bfloat16):
        a, b = mlx_array(mx, random, 4, 128, 256, dtype=kind), mlx_array(mx, random, 4, 256, 96, dtype=kind)
        found += [a @ b, mx.addmm(a[0, :, :96], a[1], b[2], alpha=0.5, beta=2.0), (a[0] @ b[1][:, 0])]
        found += [mx.softmax(a, axis=-1), mx.logsumexp(a, axis=1), a.sum(axis=(0, 2)), mx.max(a, axis=0), mx.var(a, axis=1)]
    x = mlx_array(mx, random, 64, 500)
    found += [mx.sort(x, axis=1), mx.argsort(x, axis=0), mx.cumsum(x, axis=1), mx.argmax(x, axis=1), mx.topk(x, 5, axis=1), mx.where(x > 0, x, mx.exp(x))]
    picked = mx.array(random.integers(0, 64, 32).astype("int32"))
    return mlx_results(mx, [*found, x[picked], x.at[picked].add(1.0), mx.take_along_axis(x, mx.argsort(x, axis=1), axis=1)])


@needs("mlx")
def mlx_convolutions():
    mx, random = mlx_ready()
    import mlx.nn as nn
    x, found = mlx_array(mx, random, 2, 32, 32, 8), []
    for layer in (nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.Conv2d(8, 16, 3, dilation=2), nn.ConvTranspose2d(8, 4, 4, stride=2)):
        loss, gradients = nn.value_and_grad(layer, lambda x, layer=layer: mx.mean(layer(x) ** 2))(x)
        found += [layer(x), loss.reshape(1), gradients["weight"], gradients["bias"]]
    pooled = nn.MaxPool2d(2, 2)(nn.GroupNorm(4, 8)(x))
    return mlx_results(mx, [*found, pooled, nn.Upsample(2)(pooled), nn.Conv1d(8, 4, 5)(x[0])])


@needs("mlx")
def mlx_transforms():
    mx, random = mlx_ready()
    x = mlx_array(mx, random, 8, 64, 128)
    there = mx.fft.fft2(x)
    half = mx.fft.rfft(x, axis=-1)
    return mlx_results(mx, [there, mx.real(mx.fft.ifft2(there)), half, mx.fft.irfft(half, n=128, axis=-1), mx.fft.fft(x, axis=1)])


@needs("mlx")
def mlx_transformer_that_learns():
    """Steps of training, each compiled to fewer kernels, with the state of the optimizer."""
    mx, random = mlx_ready()
    import mlx.nn as nn
    import mlx.optimizers as optimizers
    from functools import partial
    from mlx.utils import tree_flatten

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.last = nn.Embedding(100, 64), nn.Linear(64, 100)
            self.layers = nn.TransformerEncoder(num_layers=2, dims=64, num_heads=4, mlp_dims=128, norm_first=True)

        def __call__(self, tokens):
            mask = nn.MultiHeadAttention.create_additive_causal_mask(tokens.shape[1])
            return self.last(self.layers(self.words(tokens), mask))

    network, losses = Network(), []
    optimizer = optimizers.AdamW(learning_rate=1e-3)

    def wrong(network, tokens):
        return nn.losses.cross_entropy(network(tokens[:, :-1]), tokens[:, 1:], reduction="mean")

    state = [network.state, optimizer.state]

    @partial(mx.compile, inputs=state, outputs=state)
    def step(tokens):
        loss, gradients = nn.value_and_grad(network, wrong)(network, tokens)
        optimizer.update(network, gradients)
        return loss

    for _ in range(5):
        losses.append(step(mx.array(random.integers(0, 100, (8, 33)).astype("int32"))).reshape(1))
        mx.eval(state)
    return mlx_results(mx, [*losses, *(value for _, value in tree_flatten(network.parameters()))])


@needs("mlx")
def mlx_fast_layers():
    mx, random = mlx_ready()
    found = []
    for kind in (mx.float32, mx.float16, mx.bfloat16):
        x, weight, bias = (mlx_array(mx, random, *shape, dtype=kind) for shape in ((2, 64, 256), (256,), (256,)))
        q, k, v = (mlx_array(mx, random, 2, heads, 64, 64, dtype=kind) for heads in (8, 2, 2))
        found += [mx.fast.rms_norm(x, weight, 1e-5), mx.fast.layer_norm(x, weight, bias, 1e-5), mx.fast.rope(q, 64, traditional=False, base=10000.0, scale=1.0, offset=3)]
        found.append(mx.fast.scaled_dot_product_attention(q, k, v, scale=0.125, mask="causal"))
        found.append(mx.fast.scaled_dot_product_attention(q[:, :, :1], k, v, scale=0.125))
        found.append(mx.grad(lambda x, weight=weight: mx.fast.rms_norm(x, weight, 1e-5).square().mean())(x))
    return mlx_results(mx, found)


@needs("mlx")
def mlx_compiled_and_own_kernels():
    """A function that MLX fuses into kernels at run time, and kernels of ours in CUDA C++."""
    mx, random = mlx_ready()

    @mx.compile
    def fused(x, y):
        return x * mx.sigmoid(1.7 * x) + mx.tanh(y) ** 2 - mx.maximum(x, y), (x > y).astype(mx.float32)

    source = """
        auto at = cooperative_groups::this_grid().thread_rank();
        __shared__ float shared[256];
        shared[threadIdx.x] = float(x[at]);
        __syncthreads();
        y[at] = T(shared[255 - threadIdx.x] * scale[0] + twice(float(x[at])));
    """
    ours = mx.fast.cuda_kernel(name="turned", input_names=["x", "scale"], output_names=["y"], source=source, header="__device__ float twice(float x) { return x + x; }")
    found = []
    for kind in (mx.float32, mx.float16):
        x, y = mlx_array(mx, random, 32, 512, dtype=kind), mlx_array(mx, random, 32, 512, dtype=kind)
        found += [*fused(x, y), *fused(x[:, ::2], y[:, 1::2]), *fused(x, y[:1])]
        scale = mx.array([1.5])
        turned = ours(inputs=[x, scale], template=[("T", kind)], grid=(x.size, 1, 1), threadgroup=(256, 1, 1), output_shapes=[x.shape], output_dtypes=[kind])[0]
        wanted = x.reshape(-1, 256)[:, ::-1].reshape(x.shape) * 1.5 + 2 * x
        assert mx.allclose(turned, wanted, rtol=1e-2, atol=1e-2).item()
        found.append(turned)
    return mlx_results(mx, found)


# --- CatBoost: trees from kernels of its own, with pools of memory and threads for each card


def catboost_table(rows):
    """Numbers, and two columns of names, which it turns into statistics of what they go with."""
    import numpy
    import pandas
    random = numpy.random.default_rng(7)
    numbers = random.normal(size=(rows, 8)).astype(numpy.float32)
    kinds, places = random.integers(0, 6, rows), random.integers(0, 40, rows)
    table = pandas.DataFrame(numbers, columns=[f"x{at}" for at in range(8)])
    table["kind"], table["place"] = [f"kind {at}" for at in kinds], [f"place {at}" for at in places]
    score = 3 * numbers[:, 0] - 2 * numbers[:, 1] * (kinds % 2) + numpy.sin(places) + numbers[:, 2] ** 2
    return table, score, ["kind", "place"]


CATBOOST = {"iterations": 30, "depth": 5, "learning_rate": 0.2, "random_seed": 7, "boosting_type": "Plain", "border_count": 64, "random_strength": 0, "logging_level": "Silent", "allow_writing_files": False, "thread_count": 4}
CATBOOST_ON_A_CARD = {"task_type": "GPU", "devices": "0", "gpu_ram_part": 0.1}


@needs("catboost")
def catboost_regressor():
    import catboost
    table, score, names = catboost_table(4000)
    model = catboost.CatBoostRegressor(**CATBOOST, **CATBOOST_ON_A_CARD, bootstrap_type="No", loss_function="RMSE")
    model.fit(table[:3200], score[:3200], cat_features=names, eval_set=(table[3200:], score[3200:]))
    return [model.predict(table), model.get_evals_result()["learn"]["RMSE"], model.get_evals_result()["validation"]["RMSE"]]


@needs("catboost")
def catboost_classifier():
    import catboost
    import numpy
    table, score, names = catboost_table(4000)
    found = []
    for loss, classes in (("Logloss", (score > 1).astype(int)), ("MultiClass", numpy.digitize(score, [-2, 2]))):
        model = catboost.CatBoostClassifier(**CATBOOST, **CATBOOST_ON_A_CARD, bootstrap_type="Bernoulli", subsample=0.8, loss_function=loss)
        model.fit(table, classes, cat_features=names)
        found += [model.predict_proba(table), model.get_evals_result()["learn"][loss]]
    return found


@needs("catboost")
def catboost_ranks_and_leaves():
    """Pairs within groups, trees that grow leaf by leaf, and a model that is asked on the card."""
    import catboost
    import numpy
    table, score, names = catboost_table(2000)
    numbers = table.drop(columns=names).to_numpy()
    groups = catboost.Pool(numbers, numpy.digitize(score, [-3, 0, 3]), group_id=numpy.arange(2000) // 20)
    ranks = catboost.CatBoost(CATBOOST | CATBOOST_ON_A_CARD | {"loss_function": "QueryRMSE", "bootstrap_type": "No"})
    ranks.fit(groups)
    leaves = catboost.CatBoostRegressor(**CATBOOST, **CATBOOST_ON_A_CARD, bootstrap_type="No", grow_policy="Lossguide", max_leaves=20)
    leaves.fit(numbers, score)
    deep = catboost.CatBoostRegressor(**CATBOOST, **CATBOOST_ON_A_CARD, bootstrap_type="No")
    deep.fit(numbers, score)
    task = CATBOOST_ON_A_CARD["task_type"]
    return [ranks.predict(groups), leaves.predict(numbers), deep.predict(numbers, task_type=task)]


# --- MuJoCo on Warp: many worlds at once, whose step is a graph


def scene():
    """A box, a ball and a chain of two capsules with a motor, above a floor."""
    return """<mujoco>
      <option timestep="0.005" iterations="6" ls_iterations="6"/>
      <worldbody>
        <geom type="plane" size="5 5 .1"/>
        <body pos="0 0 .15"><freejoint/><geom type="box" size=".1 .15 .1" mass="1"/></body>
        <body pos=".05 .02 .4"><freejoint/><geom type="sphere" size=".1" mass=".5"/></body>
        <body pos="1 0 1"><joint name="first" type="hinge" axis="0 1 0" damping=".1"/><geom type="capsule" fromto="0 0 0 .4 0 0" size=".05"/>
          <body pos=".4 0 0"><joint type="hinge" axis="0 1 0" damping=".1"/><geom type="capsule" fromto="0 0 0 .4 0 0" size=".05"/></body>
        </body>
      </worldbody>
      <actuator><motor joint="first" gear="2"/></actuator>
    </mujoco>"""


def worlds_that_step(device, worlds=16, steps=40):
    import os
    import sys
    from importlib.util import find_spec
    # The version of Warp that lies beside it has to come before others.
    sys.path.insert(0, os.path.dirname(os.path.dirname(find_spec("mujoco_warp").origin)))
    import mujoco
    import mujoco_warp
    import numpy
    import warp
    warp.config.quiet = True
    warp.config.cuda_output = "cubin"
    model = mujoco.MjModel.from_xml_string(scene())
    first = mujoco.MjData(model)
    mujoco.mj_forward(model, first)
    with warp.ScopedDevice(device):
        on_card = mujoco_warp.put_model(model)
        data = mujoco_warp.put_data(model, first, nworld=worlds, nconmax=32, njmax=128)
        pushes = numpy.random.default_rng(7).normal(size=(worlds, model.nu)).astype(numpy.float32)
        data.ctrl = warp.array(pushes, dtype=float)
        mujoco_warp.step(on_card, data)
        if device == "cpu":
            again = lambda: mujoco_warp.step(on_card, data)
        else:
            with warp.ScopedCapture() as captured:
                mujoco_warp.step(on_card, data)
            again = lambda: warp.capture_launch(captured.graph)
        found = []
        for step in range(steps):
            again()
            if step % 10 == 9:
                found += [data.qpos.numpy(), data.qvel.numpy()]
        return found + [data.xpos.numpy(), data.cvel.numpy()]


@needs("mujoco_warp")
def mujoco_worlds_in_a_graph():
    return worlds_that_step("cuda:0")


# --- Diffusers: pictures from noise, with layers of PyTorch in float16


def pictures_from_noise(torch, device, kind, steps=4):
    """A small network, a small decoder of pictures, and two ways to go from noise to a picture."""
    from diffusers import AutoencoderKL, DDIMScheduler, DPMSolverMultistepScheduler, UNet2DConditionModel
    torch.manual_seed(7)
    network = UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(32, 64), norm_num_groups=8, cross_attention_dim=32, attention_head_dim=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D")).to(device, kind).eval()
    decoder = AutoencoderKL(
        in_channels=3, out_channels=3, latent_channels=4, block_out_channels=(32, 64), norm_num_groups=8, down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2).to(device, kind).eval()
    text, noise, found = torch.randn(2, 6, 32).to(device, kind), torch.randn(1, 4, 16, 16).to(device, kind), []
    for scheduler in (DDIMScheduler(num_train_timesteps=100), DPMSolverMultistepScheduler(num_train_timesteps=100)):
        scheduler.set_timesteps(steps)
        x = noise * scheduler.init_noise_sigma
        with torch.no_grad():
            for time in scheduler.timesteps:
                both = scheduler.scale_model_input(torch.cat([x, x]), time)
                without, with_text = network(both, time.to(device), encoder_hidden_states=text).sample.chunk(2)
                x = scheduler.step(without + 3 * (with_text - without), time, x).prev_sample
            picture = decoder.decode(x / 0.18215).sample
            found += [x, picture, decoder.encode(picture).latent_dist.mean]
    return found


@needs("diffusers")
def diffusers_pictures_from_noise():
    torch = torch_ready()
    return pictures_from_noise(torch, "cuda", torch.float16)


def network_of_pictures_that_learns(torch, device, steps=3):
    """Guesses the noise that was added to pictures; a copy of its weights follows slowly."""
    from diffusers import DDPMScheduler, UNet2DModel
    from diffusers.training_utils import EMAModel
    torch.manual_seed(8)
    network = UNet2DModel(
        sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(32, 64), norm_num_groups=8, attention_head_dim=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D")).to(device)
    followers, scheduler = EMAModel(network.parameters(), decay=0.9), DDPMScheduler(num_train_timesteps=100)
    optimizer, losses = torch.optim.AdamW(network.parameters(), lr=1e-3), []
    for _ in range(steps):
        pictures, noise = torch.rand(4, 3, 16, 16).to(device), torch.randn(4, 3, 16, 16).to(device)
        times = torch.randint(0, 100, (4,)).to(device)
        guess = network(scheduler.add_noise(pictures, noise, times), times).sample
        loss = torch.nn.functional.mse_loss(guess, noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        followers.step(network.parameters())
        losses.append(loss.detach().reshape(1))
    return [*losses, guess, *followers.shadow_params[:4]]


@needs("diffusers")
def diffusers_network_that_learns():
    return network_of_pictures_that_learns(torch_ready(), "cuda")


# --- Models of pictures that other projects define: detection, words and pictures, segments


def finder_of_things(torch, device, kind, steps=3):
    """Pictures through the layers in float16, then steps of training with its own loss."""
    import os
    os.environ.setdefault("YOLO_CONFIG_DIR", os.getcwd())
    os.environ["YOLO_OFFLINE"] = "true"
    from ultralytics.cfg import get_cfg
    from ultralytics.nn.tasks import DetectionModel
    torch.manual_seed(7)
    model = DetectionModel("yolo11n.yaml", ch=3, nc=5, verbose=False).to(device)
    pictures = torch.rand(2, 3, 96, 96).to(device)
    with torch.no_grad():
        found = [model.eval().to(kind)(pictures.to(kind))[0].float()]
    model.float().train()
    model.args = get_cfg()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = {
        "img": pictures, "batch_idx": torch.tensor([0.0, 0.0, 1.0]).to(device), "cls": torch.tensor([[0.0], [3.0], [1.0]]).to(device),
        "bboxes": torch.tensor([[0.3, 0.4, 0.3, 0.5], [0.7, 0.6, 0.4, 0.3], [0.5, 0.5, 0.6, 0.6]]).to(device)}
    for _ in range(steps):
        total, parts = model(batch)
        optimizer.zero_grad()
        total.sum().backward()
        optimizer.step()
        found.append(total.detach().reshape(-1))
    return found


@needs("ultralytics")
def ultralytics_finder_of_things():
    torch = torch_ready()
    return finder_of_things(torch, "cuda", torch.float16)


def words_and_pictures(torch, device, kind):
    from open_clip.loss import ClipLoss
    from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg
    torch.manual_seed(7)
    model = CLIP(64, CLIPVisionCfg(layers=2, width=128, head_width=32, patch_size=16, image_size=64), CLIPTextCfg(context_length=16, vocab_size=200, width=128, heads=4, layers=2)).to(device)
    pictures, words = torch.randn(4, 3, 64, 64).to(device), torch.randint(1, 200, (4, 16)).to(device)
    with torch.autocast(device, dtype=kind):
        seen, read, scale = model(pictures, words)
        loss = ClipLoss()(seen.float(), read.float(), scale)
    loss.backward()
    return [seen.float(), read.float(), loss.reshape(1), model.visual.conv1.weight.grad, model.token_embedding.weight.grad]


@needs("open_clip")
def open_clip_words_and_pictures():
    torch = torch_ready()
    return words_and_pictures(torch, "cuda", torch.float16)


def segments(torch, device):
    import segmentation_models_pytorch as models
    found = []
    for kind, encoder in ((models.Unet, "resnet18"), (models.FPN, "mobilenet_v2")):
        torch.manual_seed(7)
        model = kind(encoder, encoder_weights=None, classes=3).to(device)
        pictures, wanted = torch.randn(2, 3, 64, 64).to(device), torch.randint(0, 3, (2, 64, 64)).to(device)
        out = model(pictures)
        loss = models.losses.DiceLoss("multiclass")(out, wanted) + models.losses.FocalLoss("multiclass")(out, wanted)
        loss.backward()
        found += [out, loss.reshape(1), model.segmentation_head[0].weight.grad]
    return found


@needs("segmentation_models_pytorch")
def segmentation_of_pictures():
    return segments(torch_ready(), "cuda")


# --- cuEquivariance: products of spherical quantities, by its own kernels and by Triton


def products_of_spherical_quantities(torch, device, rows=64):
    import cuequivariance as cue
    import cuequivariance_torch as cuet
    many, few, one = (cue.Irreps("O3", text) for text in ("32x0e + 32x1o + 32x2e", "8x0e + 8x1o", "1x0e + 1x1o"))
    options, found = {"layout": cue.ir_mul, "device": device, "dtype": torch.float32}, []
    layers = [(cuet.ChannelWiseTensorProduct(many, one, shared_weights=False, internal_weights=False, **options), many, one)]
    layers.append((cuet.FullyConnectedTensorProduct(few, few, few, shared_weights=False, internal_weights=False, **options), few, few))
    for layer, first, second in layers:
        torch.manual_seed(7)
        x, y, weights = (torch.randn(rows, width).to(device).requires_grad_() for width in (first.dim, second.dim, layer.weight_numel))
        out = layer(x, y, weights)
        out.square().mean().backward()
        found += [out, x.grad, y.grad, weights.grad]
    return [*found, cuet.SphericalHarmonics([0, 1, 2, 3], normalize=True, device=device)(torch.randn(200, 3).to(device))]


@needs("cuequivariance_torch")
def cuequivariance_products():
    return products_of_spherical_quantities(torch_ready(), "cuda")


@needs("cuequivariance_torch")
def cuequivariance_triangles():
    """Attention and products over pairs of pairs, as models of proteins have them."""
    torch = torch_ready()
    import cuequivariance_torch as cuet
    q, k, v = (seeded(torch, 1, 32, 4, 32, 32, dtype=torch.bfloat16).requires_grad_() for _ in range(3))
    bias, mask = seeded(torch, 1, 1, 4, 32, 32).requires_grad_(), (torch.arange(32) < 28).expand(1, 32, 1, 1, 32).contiguous().cuda()
    out = cuet.triangle_attention(q, k, v, bias, mask=mask, scale=32**-0.5)
    out.float().square().mean().backward()
    return [out, q.grad, k.grad, v.grad, bias.grad]
