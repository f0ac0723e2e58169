"""Programs of the ladder: engines that run models, and libraries of kernels for them. They are left out where their packages are missing; PYTHONPATH=SITE brings along what this has installed:

pip install --no-deps --target SITE onnxruntime-gpu==1.31.1 fla-core==0.6.0 flash-linear-attention==0.6.0 cutensor-cu13==2.8.1 nvidia-dali-cuda130==2.4.0 astunparse==1.6.3 gast==0.7.0 optree==0.20.0 nvtx==0.2.17 makefun==1.16.0
pip install --no-deps --target ANOTHER tilelang==0.1.15 z3-solver==4.15.4.0 apache-tvm-ffi==0.1.12
pip install --no-deps --target SITE vllm==0.22.0 annotated-types==0.8.0 apache-tvm-ffi==0.1.15.post2 astor==0.8.1 blake3==1.0.11 cachetools==8.0.2 cbor2==6.3.0 compressed-tensors==0.15.0.1 depyf==0.20.0 distro==1.9.0 fastapi==0.136.3 gguf==0.19.0 jiter==0.19.0 jsonschema==4.26.0 jsonschema-specifications==2025.9.1 llguidance==1.7.6 loguru==0.7.3 mistral-common==1.13.1 msgspec==0.23.0 openai==2.54.0 openai-harmony==0.0.8 partial-json-parser==0.2.1.1.post7 pybase64==1.5.1 pycountry==26.2.16 pydantic==2.14.4 pydantic-core==2.50.5 pydantic-extra-types==2.11.1 pyzmq==27.3.0 referencing==0.37.0 rpds-py==2026.9.1 setproctitle==1.3.8 sniffio==1.3.1 starlette==1.10.0 typing-inspection==0.4.5 xgrammar==0.2.9
"""

from importlib import metadata

from programs_carried import file_of, needs
from programs_ready import case, cupy_ready, seeded, torch_ready


def needs_distribution(name):
    """Like needs, for a distribution whose module another one may have, too."""
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return lambda function: function
    return case


# --- ONNX Runtime: its own kernels, arena and streams, with cuDNN, cuBLAS and cuFFT


def onnx_session(model, elsewhere="0", **more):
    """A session on the card; a node that it can't take is an error unless it may run elsewhere."""
    torch_ready()
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.use_deterministic_compute = True
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1" if elsewhere == "0" else "0")
    chosen = {"device_id": "0", "use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"} | more
    session = onnxruntime.InferenceSession(model, options, providers=[("CUDAExecutionProvider", chosen)])
    assert session.get_providers()[0] == "CUDAExecutionProvider", session.get_providers()
    return session


def onnx_run(session, **inputs):
    """Runs it with inputs and outputs that stay on the card."""
    import onnxruntime
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array, "cuda", 0))
    for output in session.get_outputs():
        binding.bind_output(output.name, "cuda", 0)
    session.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()


@needs_distribution("onnxruntime-gpu")
def onnx_convolutions():
    import numpy
    found, x = [], numpy.random.default_rng(1).normal(size=(2, 3, 96, 96))
    for kind, options in (("float32", {}), ("float16", {"cudnn_conv_algo_search": "DEFAULT"}), ("float16", {"prefer_nhwc": "1"})):
        model = file_of("onnx_models_of_ours").images(kind)
        found += onnx_run(onnx_session(model, **options), x=x.astype(kind))
    return found


@needs_distribution("onnxruntime-gpu")
def onnx_transformer():
    import numpy
    found = []
    for kind in ("float32", "float16"):
        session = onnx_session(file_of("onnx_models_of_ours").sentences(kind))
        for length in (24, 64):
            tokens = numpy.random.default_rng(length).integers(0, 1000, (2, length))
            found += onnx_run(session, tokens=tokens, counts=numpy.array([length, length - 7], numpy.int32))
    return found


def onnx_fixed(session, shape):
    """An input and outputs of float16 whose addresses never change."""
    import numpy
    import onnxruntime
    value, binding = onnxruntime.OrtValue.ortvalue_from_numpy(numpy.zeros(shape, numpy.float16), "cuda", 0), session.io_binding()
    binding.bind_ortvalue_input("x", value)
    for output in session.get_outputs():
        given = onnxruntime.OrtValue.ortvalue_from_shape_and_type(output.shape, numpy.float16, "cuda", 0)
        binding.bind_ortvalue_output(output.name, given)
    return value, binding


@needs_distribution("onnxruntime-gpu")
def onnx_graph_capture():
    """First runs are captured, a graph for each set of addresses; later ones replay them."""
    import numpy
    import onnxruntime
    models, found, random = file_of("onnx_models_of_ours"), [], numpy.random.default_rng(3)
    for model, shape in ((models.layers("float16"), (64, 256)), (models.images("float16", 1), (1, 3, 96, 96))):
        session = onnx_session(model, enable_cuda_graph="1")
        fixed = [onnx_fixed(session, shape) for _ in range(2)]
        for turn in range(8):
            value, binding = fixed[turn % 2]
            chosen = onnxruntime.RunOptions()
            chosen.add_run_config_entry("gpu_graph_id", str(1 + turn % 2))
            value.update_inplace(random.normal(size=shape).astype(numpy.float16))
            session.run_with_iobinding(binding, chosen)
            found += binding.copy_outputs_to_cpu()
    return found


@needs_distribution("onnxruntime-gpu")
def onnx_decoder_with_cache():
    """A prompt, then token after token, with four-bit weights and a cache of keys and values."""
    import numpy
    import onnxruntime
    models = file_of("onnx_models_of_ours")
    session = onnx_session(models.decoder("float16"))
    random, found, past = numpy.random.default_rng(4), [], 0
    keys, values = (onnxruntime.OrtValue.ortvalue_from_numpy(numpy.zeros((2, 2, 64, 64), numpy.float16), "cuda", 0) for _ in range(2))
    for length in (17, 1, 1, 1, 1):
        total = past + length
        binding = session.io_binding()
        binding.bind_cpu_input("x", random.normal(size=(2, length, 256)).astype(numpy.float16))
        binding.bind_cpu_input("last", numpy.full((2, 1), total - 1, numpy.int32))
        binding.bind_cpu_input("total", numpy.array([total], numpy.int32))
        binding.bind_ortvalue_input("keys", keys)
        binding.bind_ortvalue_input("values", values)
        binding.bind_output("y", "cuda", 0)
        binding.bind_ortvalue_output("new_keys", keys)
        binding.bind_ortvalue_output("new_values", values)
        session.run_with_iobinding(binding)
        found.append(binding.copy_outputs_to_cpu()[0])
        past = total
    return [*found, keys.numpy()[:, :, :past], values.numpy()[:, :, :past]]


@needs_distribution("onnxruntime-gpu")
def onnx_recurrences_and_loops():
    """cuDNN's LSTM and GRU, a loop with a body of its own, sorting and sums, and cuFFT."""
    import numpy
    random, models = numpy.random.default_rng(5), file_of("onnx_models_of_ours")
    x = random.normal(size=(12, 4, 32)).astype(numpy.float32)
    found = onnx_run(onnx_session(models.recurrences(), elsewhere="1"), x=x)
    found += onnx_run(onnx_session(models.loop(), elsewhere="1", arena_extend_strategy="kSameAsRequested"), x=x[0])
    return found + onnx_run(onnx_session(models.transforms()), x=random.normal(size=(4, 256)).astype(numpy.float32))


@needs_distribution("onnxruntime-gpu")
def onnx_on_a_stream_of_pytorch():
    """Its inputs are tensors of PyTorch, and it runs in PyTorch's stream."""
    torch = torch_ready()
    import numpy
    stream, found = torch.cuda.Stream(), []
    session = onnx_session(file_of("onnx_models_of_ours").layers("float16"), user_compute_stream=str(stream.cuda_stream))
    with torch.cuda.stream(stream):
        for _ in range(3):
            x = seeded(torch, 64, 256, dtype=torch.float16)
            y = torch.empty(64, 128, device="cuda", dtype=torch.float16)
            binding = session.io_binding()
            binding.bind_input("x", "cuda", 0, numpy.float16, tuple(x.shape), x.data_ptr())
            binding.bind_output("y", "cuda", 0, numpy.float16, tuple(y.shape), y.data_ptr())
            session.run_with_iobinding(binding)
            found += [y, (y * 2 + x.sum()).float()]
    stream.synchronize()
    return found


@needs_distribution("onnxruntime-gpu")
def onnx_experts():
    """A mixture of experts: CUTLASS's grouped products."""
    import numpy
    session = onnx_session(file_of("onnx_models_of_ours").experts("float16"))
    return onnx_run(session, x=numpy.random.default_rng(6).normal(size=(32, 128)).astype(numpy.float16))


# --- vLLM: continuous batching, attention by pages, compiled pieces in graphs


@needs("vllm")
def vllm_compiled_with_graphs():
    models = file_of("vllm_models_of_ours")
    return models.serve(models.answers, graphs=models.COMPILED_IN_GRAPHS)


@needs("vllm")
def vllm_attention_in_triton():
    models = file_of("vllm_models_of_ours")
    return models.serve(models.answers, attention_backend="TRITON_ATTN", enable_prefix_caching=True)


@needs("vllm")
def vllm_engine_of_its_own():
    """The engine is a process of its own, as `vllm serve` has it."""
    models = file_of("vllm_models_of_ours")
    return models.serve(models.answers, own_process=True, graphs=models.STEPS_IN_GRAPHS)


@needs("vllm")
def vllm_sleeps_and_wakes():
    models = file_of("vllm_models_of_ours")
    return models.serve(models.answers_around_sleep, enable_sleep_mode=True)


# --- Flash linear attention: large kernels in Triton


def linear_attention_ready():
    """Its tuners would compile and time hundreds of variants: one with four warps is enough."""
    import os
    import sys
    os.environ["FLA_DISABLE_BACKEND_DISPATCH"] = "1"
    # It imports TileLang where it finds that, and the version of tvm_ffi beside that.
    sys.path[:] = [folder for folder in sys.path if not os.path.exists(os.path.join(folder, "tilelang"))]
    torch = torch_ready()
    from triton.runtime.autotuner import Autotuner
    whole = Autotuner.__init__

    def with_one(self, fn, arg_names, configs, *more, **named):
        chosen = [config for config in configs or () if config.num_warps == 4] or list(configs or ())
        whole(self, fn, arg_names, chosen[:1], *more, **named)

    Autotuner.__init__ = with_one
    return torch


def leaves(torch, *shape, count=3, dtype=None):
    return [seeded(torch, *shape, dtype=dtype or torch.bfloat16).requires_grad_() for _ in range(count)]


@needs("fla")
def fla_gated_linear_attention():
    torch = linear_attention_ready()
    from fla.ops.gla import chunk_gla, fused_recurrent_gla
    q, k, v = leaves(torch, 2, 128, 2, 64)
    gate, = leaves(torch, 2, 128, 2, 64, count=1, dtype=torch.float32)
    out, state = chunk_gla(q, k, v, torch.nn.functional.logsigmoid(gate) / 16, output_final_state=True)
    out.float().square().mean().backward()
    with torch.no_grad():
        more, _ = fused_recurrent_gla(q[:, :16], k[:, :16], v[:, :16], torch.nn.functional.logsigmoid(gate[:, :16]) / 16, initial_state=state)
    return [out, state, q.grad, k.grad, v.grad, gate.grad, more]


@needs("fla")
def fla_retention_and_forgetting():
    torch = linear_attention_ready()
    from fla.ops.forgetting_attn import parallel_forgetting_attn
    from fla.ops.hgrn import fused_recurrent_hgrn
    from fla.ops.retention import chunk_retention
    q, k, v = leaves(torch, 2, 128, 4, 64)
    kept, _ = chunk_retention(q, k, v)
    forgot = parallel_forgetting_attn(q, k, v, torch.nn.functional.logsigmoid(seeded(torch, 2, 128, 4)))
    (kept.float().square().mean() + forgot.float().square().mean()).backward()
    x, gate = seeded(torch, 2, 128, 256), torch.nn.functional.logsigmoid(seeded(torch, 2, 128, 256))
    return [kept, forgot, q.grad, k.grad, v.grad, fused_recurrent_hgrn(x, gate)[0]]


@needs("fla")
def fla_layer_that_learns():
    """A layer with short convolutions and gated norms, and a loss fused with the last product."""
    torch = linear_attention_ready()
    from fla.layers import GatedLinearAttention
    from fla.modules import FusedLinearCrossEntropyLoss, RMSNorm
    torch.manual_seed(4)
    norm = RMSNorm(256).cuda()
    layer = GatedLinearAttention(hidden_size=256, num_heads=2, expand_k=0.5, use_short_conv=True).cuda().bfloat16()
    words, x = torch.nn.Parameter(seeded(torch, 1000, 256)), seeded(torch, 2, 128, 256)
    targets, losses = torch.randint(0, 1000, (256,)).cuda(), []
    parameters = [*norm.parameters(), *layer.parameters(), words]
    optimizer = torch.optim.SGD(parameters, lr=0.05)
    for _ in range(3):
        out = x + layer(norm(x).bfloat16())[0].float()
        loss = FusedLinearCrossEntropyLoss()(out.reshape(256, 256), targets, words)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().reshape(1))
    return [*losses, out]


# --- cuTENSOR, by CuPy


def cutensor_ready():
    """CuPy loads only the first of these two, and its module needs both; PyTorch brings cuBLAS."""
    torch_ready()
    import ctypes
    folder = metadata.distribution("cutensor-cu13")
    for name in ("libcutensor.so.2", "libcutensorMg.so.2"):
        ctypes.CDLL(str(folder.locate_file(f"cutensor/lib/{name}")))
    cupy, random = cupy_ready()
    from cupyx import cutensor
    return cupy, cutensor, random


@needs_distribution("cutensor-cu13")
def cutensor_contractions():
    cupy, cutensor, random = cutensor_ready()
    import numpy
    found = []
    for kind in ("float32", "float64", "complex64", "float16"):
        a, b, c = (cupy.asarray(random.normal(size=shape).astype(kind)) for shape in ((24, 16, 32), (32, 20, 16), (20, 24)))
        wanted = numpy.einsum("ijk,klj->li", *(part.get().astype("complex128") for part in (a, b))) * 1.5 + 0.5 * c.get()
        out = cutensor.contraction(1.5, a, tuple("ijk"), b, tuple("klj"), 0.5, c, tuple("li"))
        assert abs(out.get() - wanted).max() < 0.5
        found += [out.real, out.imag] if kind == "complex64" else [out]
    a, b = (cupy.asarray(random.normal(size=shape).astype("float32")) for shape in ((4, 12, 10, 14), (4, 14, 10, 18)))
    batched = cupy.zeros((18, 4, 12), "float32")
    return [*found, cutensor.contraction(1.0, a, tuple("bmuv"), b, tuple("bvun"), 0.0, batched, tuple("nbm"))]


@needs_distribution("cutensor-cu13")
def cutensor_reductions_and_sums():
    cupy, cutensor, random = cutensor_ready()
    from cupy_backends.cuda.libs import cutensor as names
    a, b, c = (cupy.asarray(random.normal(size=shape).astype("float32")) for shape in ((30, 40, 50), (50, 30, 40), (40, 50, 30)))
    sums, most = cupy.zeros((50, 30), "float32"), cupy.zeros(40, "float32")
    found = [cutensor.reduction(2.0, a, tuple("ijk"), 0.0, sums, tuple("ki")).copy()]
    found.append(cutensor.reduction(1.0, a, tuple("ijk"), 0.0, most, tuple("j"), op_reduce=names.OP_MAX).copy())
    found.append(cutensor.elementwise_binary(1.5, a, tuple("ijk"), -1.0, b, tuple("kij")))
    found.append(cutensor.elementwise_trinary(1.0, a, tuple("ijk"), 2.0, b, tuple("kij"), 3.0, c, tuple("jki"), op_AB=names.OP_MUL))
    assert abs(found[0].get() - 2 * a.get().sum(axis=1).T).max() < 1e-2
    return found


@needs_distribution("cutensor-cu13")
def cutensor_behind_cupy():
    """CuPy's own functions, which it then gives to cuTENSOR where it can."""
    cupy, _, random = cutensor_ready()
    cupy._core.set_routine_accelerators(["cutensor"])
    cupy._core.set_reduction_accelerators(["cutensor"])
    a, b, c = (cupy.asarray(random.normal(size=shape)) for shape in ((16, 24, 32), (32, 24, 8), (8, 16)))
    return [cupy.einsum("ijk,kjl->il", a, b), cupy.einsum("ijk,kjl,li->j", a, b, c), cupy.tensordot(a, b, axes=([2, 1], [0, 1])), a.sum(axis=(0, 2)), a.max(axis=1)]


# --- TileLang: a compiler on TVM, whose kernels nvcc builds


@needs("tilelang")
def tilelang_product_and_attention():
    torch = torch_ready()
    import os
    import sys
    from importlib.util import find_spec
    # The version of tvm_ffi that lies beside it has to come before others.
    sys.path.insert(0, os.path.dirname(os.path.dirname(find_spec("tilelang").origin)))
    a, b = seeded(torch, 256, 384, dtype=torch.float16), seeded(torch, 384, 512, dtype=torch.float16)
    q, k, v = (seeded(torch, 2, 256, 4, 64, dtype=torch.float16) for _ in range(3))
    return file_of("tilelang_kernels_of_ours").results(torch, a, b, q, k, v)


# --- DALI: a pipeline of operators with threads, queues and pools of its own


def batches_of_pictures(batch):
    """Pictures of different sizes, and a wave for each, from fixed seeds."""
    import numpy

    def source(turn):
        random = numpy.random.default_rng(turn)
        sizes = [(int(random.integers(60, 120)), int(random.integers(60, 120)), 3) for _ in range(batch)]
        return [random.integers(0, 256, size).astype(numpy.uint8) for size in sizes], [random.normal(size=4096).astype(numpy.float32) for _ in sizes]

    return source


def pictures_and_waves(batch=4, device_id=0, side="gpu"):
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=batch, num_threads=2, device_id=device_id, seed=11)
    def ours():
        pictures, waves = fn.external_source(source=batches_of_pictures(batch), num_outputs=2, layout=["HWC", ""])
        angle = fn.random.uniform(range=(-20.0, 20.0))
        mirror = fn.random.coin_flip(probability=0.5)
        pictures, waves = (pictures.gpu(), waves.gpu()) if side == "gpu" else (pictures, waves)
        resized = fn.resize(pictures, resize_x=72, resize_y=64, interp_type=types.INTERP_CUBIC)
        turned = fn.rotate(resized, angle=angle, keep_size=True, fill_value=0)
        blurred = fn.gaussian_blur(turned, sigma=1.2)
        bright = fn.brightness_contrast(blurred, brightness=1.1, contrast=0.9)
        normal = fn.crop_mirror_normalize(bright, crop=(56, 56), mirror=mirror, mean=[120.0, 115.0, 100.0], std=[58.0, 57.0, 57.0], output_layout="CHW", dtype=types.FLOAT)
        gray = fn.color_space_conversion(resized, image_type=types.RGB, output_type=types.GRAY)
        spectrum = fn.mel_filter_bank(fn.spectrogram(waves, nfft=256, window_length=256, window_step=128), sample_rate=16000, nfilter=32)
        return normal, gray, fn.to_decibels(spectrum), fn.reductions.mean(normal, axes=[1, 2])

    return ours()


@needs("nvidia.dali")
def dali_pictures_and_waves():
    torch_ready()
    pipeline, found = pictures_and_waves(), []
    pipeline.build()
    for _ in range(3):
        found += [output.as_cpu().as_array() for output in pipeline.run()]
    return found
