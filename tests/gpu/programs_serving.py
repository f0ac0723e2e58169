"""Programs of the ladder: SGLang, whose engine runs its model in a process of its own. They are left out where it is missing; PYTHONPATH=SITE brings along what this has installed, beside what programs_inference.py lists for vLLM:

pip install --no-deps --target SITE sglang==0.5.11 sglang-kernel==0.4.2 flashinfer-python==0.6.8.post1 torch-memory-saver==0.0.10 dill==0.4.1 interegular==0.3.3 nvidia-ml-py==13.615.71 orjson==3.13.0 python-multipart==0.0.34 uvicorn==0.54.0 ipython==9.18.1 asttokens==3.0.2 decorator==5.3.1 executing==2.3.0 ipython-pygments-lexers==1.1.1 jedi==0.20.1 matplotlib-inline==0.2.2 parso==0.8.7 pexpect==4.9.0 prompt-toolkit==3.0.53 ptyprocess==0.7.0 pure-eval==0.2.4 stack-data==0.6.3 traitlets==5.16.1 wcwidth==0.9.4

SGLang compiles some kernels with nvcc at first use. `sglang_models_of_ours.py SITE/sglang_kernels` does that in advance, for machines that have no nvcc.
"""

from programs_carried import file_of, needs

SMALL_GRAPHS = {"disable_cuda_graph": False, "cuda_graph_bs": [1, 2, 4]}


@needs("sglang")
def sglang_without_graphs():
    models = file_of("sglang_models_of_ours")
    return models.serve(models.answers)


@needs("sglang")
def sglang_with_graphs():
    models = file_of("sglang_models_of_ours")
    return models.serve(models.answers, **SMALL_GRAPHS)


@needs("sglang")
def sglang_flash_attention():
    """Its own build of FlashAttention 3, with graphs."""
    models = file_of("sglang_models_of_ours")
    return models.serve(models.answers, attention_backend="fa3", **SMALL_GRAPHS)


@needs("sglang")
def sglang_common_prefixes():
    models = file_of("sglang_models_of_ours")
    return models.serve(models.answers_with_prefixes, disable_radix_cache=False, **SMALL_GRAPHS)


@needs("sglang")
def sglang_samples_with_seeds():
    """Kernels whose sums don't depend on the batch, and each request's own random numbers."""
    models = file_of("sglang_models_of_ours")
    return models.serve(models.samples, enable_deterministic_inference=True)


@needs("sglang")
def sglang_weights_from_another_process():
    """The parent's tensors come to the engine as memory of the card that both share."""
    models = file_of("sglang_models_of_ours")
    return models.serve(models.answers_with_other_weights, **SMALL_GRAPHS)


@needs("torch_memory_saver")
def sglang_gives_memory_back():
    """The engine's memory is mapped again at the same addresses, and its graphs go on."""
    models = file_of("sglang_models_of_ours")
    return models.serve(models.answers_around_release, enable_memory_saver=True, enable_weights_cpu_backup=True, **SMALL_GRAPHS)
