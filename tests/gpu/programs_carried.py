"""Programs of the ladder: packages that few machines have. They are left out where they are missing; PYTHONPATH=SITE brings along what this has installed:

pip install --no-deps --target SITE taichi==1.7.4 dill==0.4.1 warp-lang==1.3.3 bitsandbytes==0.50.2 cuda-cccl==1.1.1 sortedcontainers==2.4.0 liger-kernel==0.8.5 torchao==0.18.0 nvmath-python==1.0.0
"""

from importlib.util import find_spec

from programs_ready import case, cupy_ready, seeded, torch_ready


def needs(package):
    """Registers a program where its package is installed."""
    try:
        is_there = find_spec(package) is not None
    except ModuleNotFoundError:
        is_there = False
    return case if is_there else lambda function: function


def file_of(source):
    """Some compilers read their kernels from a file of their own, so kernels live in one."""
    import importlib
    return importlib.import_module(source)


# --- Taichi: PTX of its own compiler, loaded through the driver


@needs("taichi")
def taichi_fields_and_kernels():
    return file_of("taichi_kernels_of_ours").fields()


@needs("taichi")
def taichi_particles_on_a_grid():
    return file_of("taichi_kernels_of_ours").particles()


@needs("taichi")
def taichi_sparse_and_gradients():
    return file_of("taichi_kernels_of_ours").gradients()


# --- Warp: a compiler, pools of memory and graphs of its own


@needs("warp")
def warp_kernels_and_graphs():
    return file_of("warp_kernels_of_ours").kernels()


@needs("warp")
def warp_gradients():
    return file_of("warp_kernels_of_ours").gradients()


@needs("warp")
def warp_meshes_and_sorts():
    return file_of("warp_kernels_of_ours").mesh_and_sort()


# --- bitsandbytes


@needs("bitsandbytes")
def bitsandbytes_four_bits():
    torch = torch_ready()
    import bitsandbytes.functional as functional
    x = seeded(torch, 256, 512, dtype=torch.float16)
    packed, state = functional.quantize_4bit(x, quant_type="nf4", blocksize=64)
    back = functional.dequantize_4bit(packed, state)
    one = seeded(torch, 1, 512, dtype=torch.float16)
    return [packed, back, functional.gemv_4bit(one, packed.t(), state=state)]


@needs("bitsandbytes")
def bitsandbytes_eight_bits():
    torch = torch_ready()
    import bitsandbytes as bnb
    layer = torch.nn.Linear(256, 128)
    ours = bnb.nn.Linear8bitLt(256, 128, has_fp16_weights=False, threshold=6.0)
    ours.load_state_dict(layer.state_dict())
    ours = ours.cuda()
    return [ours(seeded(torch, 64, 256, dtype=torch.float16))]


@needs("bitsandbytes")
def bitsandbytes_optimizers():
    torch = torch_ready()
    import bitsandbytes as bnb
    losses = []
    for kind in (bnb.optim.Adam8bit, bnb.optim.Lion8bit, bnb.optim.PagedAdamW32bit):
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(128, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)).cuda()
        optimizer, x = kind(model.parameters(), lr=1e-3), seeded(torch, 32, 128)
        for _ in range(5):
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach().reshape(1))
    return losses


# --- cuda.compute: CUB's algorithms, compiled and linked at run time


@needs("cuda.compute")
def compute_reductions_and_scans():
    cupy, random = cupy_ready()
    import numpy
    import cuda.compute as compute
    x = cupy.asarray(random.integers(0, 100, 100_000).astype(numpy.int32))
    total, most, sums = cupy.zeros(1, numpy.int32), cupy.zeros(1, numpy.int32), cupy.zeros_like(x)
    zero = numpy.zeros(1, numpy.int32)
    add = compute.OpKind.PLUS
    compute.reduce_into(d_in=x, d_out=total, num_items=x.size, op=add, h_init=zero)
    compute.reduce_into(d_in=x, d_out=most, num_items=x.size, op=compute.OpKind.MAXIMUM, h_init=zero)
    compute.inclusive_scan(d_in=x, d_out=sums, op=add, init_value=zero, num_items=x.size)
    counted = cupy.zeros(1, numpy.int32)
    compute.reduce_into(d_in=compute.CountingIterator(numpy.int32(0)), d_out=counted, num_items=1000, op=add, h_init=zero)
    assert total.get()[0] == x.get().sum() and counted.get()[0] == 999 * 500
    return [total, most, sums, counted]


@needs("cuda.compute")
def compute_sorts_and_transforms():
    cupy, random = cupy_ready()
    import numpy
    import cuda.compute as compute
    keys, values = cupy.asarray(random.random(50_000).astype(numpy.float32)), cupy.arange(50_000, dtype=numpy.int32)
    sorted_keys, sorted_values = cupy.zeros_like(keys), cupy.zeros_like(values)
    down = compute.SortOrder.DESCENDING
    compute.radix_sort(d_in_keys=keys, d_out_keys=sorted_keys, d_in_values=values, d_out_values=sorted_values, order=down, num_items=keys.size)
    merged = cupy.zeros_like(keys)
    compute.merge_sort(d_in_keys=keys, d_out_keys=merged, op=compute.OpKind.LESS, num_items=keys.size)
    both = cupy.zeros_like(keys)
    compute.binary_transform(d_in1=keys, d_in2=merged, d_out=both, op=compute.OpKind.MULTIPLIES, num_items=keys.size)
    return [sorted_keys, sorted_values, merged, both]


# --- Layers and quantities of other projects, by Triton and PyTorch


@needs("liger_kernel")
def liger_layers():
    torch = torch_ready()
    from liger_kernel.transformers import LigerLayerNorm, LigerRMSNorm
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction
    x, other = (seeded(torch, 64, 1024).requires_grad_() for _ in range(2))
    out = LigerSiLUMulFunction.apply(LigerRMSNorm(1024).cuda()(x), LigerLayerNorm(1024).cuda()(other))
    out.square().mean().backward()
    return [out, x.grad, other.grad]


@needs("liger_kernel")
def liger_losses():
    torch = torch_ready()
    from liger_kernel.transformers import LigerCrossEntropyLoss, LigerFusedLinearCrossEntropyLoss
    x, weight = seeded(torch, 128, 256).requires_grad_(), seeded(torch, 5000, 256).requires_grad_()
    targets = torch.randint(0, 5000, (128,)).cuda()
    fused = LigerFusedLinearCrossEntropyLoss()(weight, x, targets)
    fused.backward()
    return [fused.reshape(1), x.grad, weight.grad, LigerCrossEntropyLoss()((x @ weight.t()).detach().requires_grad_(), targets).reshape(1)]


@needs("torchao")
def torchao_quantized():
    torch = torch_ready()
    from torchao.quantization import Float8DynamicActivationFloat8WeightConfig, Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, quantize_
    found, x = [], seeded(torch, 64, 512, dtype=torch.bfloat16)
    for config in (Int8WeightOnlyConfig(), Int8DynamicActivationInt8WeightConfig(), Float8DynamicActivationFloat8WeightConfig()):
        torch.manual_seed(2)
        model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.GELU(), torch.nn.Linear(512, 256)).cuda().bfloat16()
        quantize_(model, config)
        with torch.no_grad():
            found.append(model(x))
    return found


# --- nvmath: the libraries' expert interfaces


@needs("nvmath")
def nvmath_transforms():
    cupy, random = cupy_ready()
    import nvmath
    x = cupy.asarray((random.random((8, 128, 128)) + 1j * random.random((8, 128, 128))).astype("complex64"))
    with nvmath.fft.FFT(x, axes=(1, 2)) as transform:
        transform.plan()
        there = transform.execute()
        back = transform.execute(direction=nvmath.fft.FFTDirection.INVERSE)
    return [there.real, there.imag, back.real]


@needs("nvmath")
def nvmath_products_with_epilogs():
    torch = torch_ready()
    import nvmath.linalg.advanced as advanced
    a, b, bias = seeded(torch, 256, 128, dtype=torch.float16), seeded(torch, 128, 192, dtype=torch.float16), seeded(torch, 256, 1, dtype=torch.float16)
    with advanced.Matmul(a, b) as product:
        product.plan(epilog=advanced.MatmulEpilog.RELU_BIAS, epilog_inputs={"bias": bias})
        first = product.execute()
        product.autotune(iterations=2)
        return [first, product.execute()]
