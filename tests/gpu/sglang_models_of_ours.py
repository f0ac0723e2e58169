"""Llamas with random weights, served by SGLang from a process of its own: greedy tokens of prompts, of which four run at a time.

sglang_models_of_ours.py FOLDER     compiles the kernels that these engines would compile at first use into FOLDER

A machine without nvcc takes them from a folder sglang_kernels on PYTHONPATH. They are for cards of compute capability 9.0 alone.
"""

import importlib
import os
import sys
import tempfile
import time
from pathlib import Path

from vllm_models_of_ours import TOKENS, Sizes, prompts, write_model

SETTINGS = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "SGLANG_IS_FLASHINFER_AVAILABLE": "false",
    "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1", "SGLANG_ENABLE_JIT_DEEPGEMM": "0", "SGLANG_NUMA_BIND_V2": "false", "TORCHINDUCTOR_COMPILE_THREADS": "1",
}
SIZES = Sizes(width=256, heads=8, shared_heads=4, head=64)


def accept_registered_models():
    """SGLang registers models that a newer Transformers has by now: its own are taken, as its version of Transformers would do."""
    from transformers.models.auto import configuration_auto
    kind = type(configuration_auto.CONFIG_MAPPING)
    if kind.register.__name__ == "register_again":
        return
    register = kind.register

    def register_again(self, key, value, exist_ok=False):
        register(self, key, value, exist_ok=True)

    kind.register = register_again


def take_compiled_kernels():
    """Loads a kernel from sglang_kernels if it lies there, and compiles it otherwise."""
    import tvm_ffi.cpp
    folder = next((path for path in (Path(entry, "sglang_kernels") for entry in sys.path) if path.is_dir()), None)
    compile_it = tvm_ffi.cpp.load_inline
    if folder is None or compile_it.__name__ == "load_compiled":
        return

    def load_compiled(name, **how):
        file = folder / f"{name}.so"
        return tvm_ffi.load_module(str(file)) if file.exists() else compile_it(name, **how)

    tvm_ffi.cpp.load_inline = load_compiled


def prepare():
    os.environ.update(SETTINGS)
    accept_registered_models()
    take_compiled_kernels()


def use_kernels_of_sgl_kernel():
    """Where it can choose, it takes FlashInfer's, which nvcc would have to compile."""
    for name in ("sgl_kernel.elementwise", "sgl_kernel.sampling"):
        importlib.import_module(name)._has_flashinfer = False


def scheduler(*how):
    use_kernels_of_sgl_kernel()
    from sglang.srt.managers.scheduler import run_scheduler_process
    run_scheduler_process(*how)


def detokenizer(*how):
    from sglang.srt.managers.detokenizer_manager import run_detokenizer_process
    run_detokenizer_process(*how)


# SGLang's processes import this file before anything of SGLang, to find the two functions above.
prepare()


def let_preloads_find_cuda():
    """A library that is preloaded into the engine's process needs the CUDA runtime before Python has loaded it."""
    import nvidia
    folders = [str(path) for entry in nvidia.__path__ for path in Path(entry).glob("cu[0-9]*/lib")]
    os.environ["LD_LIBRARY_PATH"] = ":".join([*filter(None, [os.environ.get("LD_LIBRARY_PATH")]), *folders])


def make_engine(folder, **more):
    from sglang.srt.entrypoints.engine import Engine

    class OurEngine(Engine):
        run_scheduler_process_func = staticmethod(scheduler)
        run_detokenizer_process_func = staticmethod(detokenizer)

    settings = {
        "model_path": folder, "skip_tokenizer_init": True, "dtype": "bfloat16", "context_length": 512, "max_running_requests": 4, "max_total_tokens": 4096,
        "mem_fraction_static": 0.5, "chunked_prefill_size": 512, "random_seed": 0, "attention_backend": "triton", "sampling_backend": "pytorch",
        "grammar_backend": "none", "disable_cuda_graph": True, "disable_piecewise_cuda_graph": True, "disable_radix_cache": True, "log_level": "error",
    }
    return OurEngine(**settings | more)


def sampling(**more):
    return {"temperature": 0.0, "max_new_tokens": TOKENS, "ignore_eos": True} | more


def ids():
    return [prompt["prompt_token_ids"] for prompt in prompts(SIZES)]


def answers(engine, prompts=None, **more):
    """The tokens, and the logarithms of their probabilities."""
    outputs = engine.generate(input_ids=prompts or ids(), sampling_params=sampling(**more), return_logprob=True)
    tokens = [output["output_ids"] for output in outputs]
    assert len({token for row in tokens for token in row}) > TOKENS, "the model always says the same"
    return [tokens, [[step[0] for step in output["meta_info"]["output_token_logprobs"]] for output in outputs]]


def answers_with_prefixes(engine):
    """Prompts that begin like earlier ones: the engine still has the keys and values of those beginnings."""
    import numpy
    random = numpy.random.default_rng(10)
    first = ids()[-4:]
    later = [row + random.integers(3, SIZES.words, 5 + 9 * number).tolist() for number, row in enumerate(first)]
    found, cached = answers(engine, first), cached_tokens(engine, later)
    assert cached == [len(row) for row in first], f"{cached} tokens were cached"
    return found + answers(engine, later) + [cached]


def cached_tokens(engine, prompts):
    return [output["meta_info"]["cached_tokens"] for output in engine.generate(input_ids=prompts, sampling_params=sampling(max_new_tokens=1))]


def samples(engine):
    """Each request has a seed; some are asked for again alone."""
    how = [sampling(temperature=0.8, top_k=50, top_p=0.9, sampling_seed=100 + number) for number in range(len(ids()))]
    together = [output["output_ids"] for output in engine.generate(input_ids=ids(), sampling_params=how)]
    alone = [engine.generate(input_ids=prompt, sampling_params=one)["output_ids"] for prompt, one in list(zip(ids(), how))[::3]]
    return [together, alone, *answers(engine)]


def answers_with_other_weights(engine):
    import torch
    before = answers(engine)
    source = torch.Generator().manual_seed(4321)
    head = torch.randn(SIZES.words, SIZES.width, generator=source) * 4 * SIZES.width**-0.5
    done, why = engine.update_weights_from_tensor([("lm_head.weight", head.bfloat16().cuda())])[:2]
    assert done, why
    after = answers(engine)
    assert after[0] != before[0], "the same tokens with other weights"
    return before + after


def answers_around_release(engine):
    """The same twice; between them the weights are on the host, and the card's memory is given back."""
    before = answers(engine)
    # The engine takes this only when it has nothing to do, and its last step ends after the last
    # answer.
    time.sleep(1)
    engine.release_memory_occupation()
    engine.resume_memory_occupation()
    assert answers(engine)[0] == before[0], "other tokens after the release"
    return before


def serve(use, **settings):
    """What `use` makes of an engine."""
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, SIZES)
        if settings.get("enable_memory_saver"):
            let_preloads_find_cuda()
        engine = make_engine(folder, **settings)
    found = use(engine)
    engine.shutdown()
    return found


def compile_kernels(folder):
    """Compiles them for a card of compute capability 9.0, whatever card is here."""
    import shutil

    import torch
    import tvm_ffi.cpp

    def compile_it(name, keep_module_alive=True, **how):
        shutil.copy(tvm_ffi.cpp.build_inline(name, **how), folder / f"{name}.so")

    tvm_ffi.cpp.load_inline = compile_it
    from sglang.jit_kernel import activation, clamp_position, kvcache, resolve_future_token_ids, rope, utils
    folder.mkdir(parents=True, exist_ok=True)
    with utils.override_jit_cuda_arch(9, 0):
        activation._jit_activation_module(torch.bfloat16)
        rope._jit_fused_rope_module(True, SIZES.head, torch.bfloat16)
        kvcache._jit_kvcache_module(SIZES.shared_heads * SIZES.head * 2)
        for kind in (torch.int32, torch.int64):
            clamp_position._jit_clamp_position_module(kind)
            resolve_future_token_ids._jit_resolve_future_token_ids_module(kind)


if __name__ == "__main__":
    compile_kernels(Path(sys.argv[1]))
