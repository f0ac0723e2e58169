"""A small Llama with random weights, served by vLLM: greedy tokens of eight prompts, of which four run at a time."""

import json
import os
import tempfile
from pathlib import Path

SETTINGS = {
    "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
    "VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_USE_DEEP_GEMM": "0", "VLLM_PLUGINS": "", "VLLM_DISABLE_COMPILE_CACHE": "1", "VLLM_USE_AOT_COMPILE": "0",
    "VLLM_LOGGING_LEVEL": "WARNING", "VLLM_HOST_IP": "127.0.0.1", "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1",
}
WORDS, WIDTH, LAYERS, HEADS, SHARED_HEADS, HEAD, INNER = 2048, 256, 4, 8, 4, 64, 512
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": WORDS, "hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": SHARED_HEADS, "head_dim": HEAD, "max_position_embeddings": 1024, "hidden_act": "silu", "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
    "pad_token_id": 0,
}
TOKENS, LENGTHS = 64, (3, 7, 16, 17, 33, 64, 100, 129)


def write_model(folder):
    import torch
    from safetensors.torch import save_file
    source = torch.Generator().manual_seed(1234)

    def random(rows, columns, scale):
        return (torch.randn(rows, columns, generator=source) * scale).bfloat16()

    ones = torch.ones(WIDTH).bfloat16()
    weights = {"model.embed_tokens.weight": random(WORDS, WIDTH, 1.0), "model.norm.weight": ones, "lm_head.weight": random(WORDS, WIDTH, 0.25)}
    shapes = {"self_attn.q_proj": (HEADS * HEAD, WIDTH), "self_attn.k_proj": (SHARED_HEADS * HEAD, WIDTH), "self_attn.v_proj": (SHARED_HEADS * HEAD, WIDTH)}
    shapes |= {"self_attn.o_proj": (WIDTH, HEADS * HEAD), "mlp.gate_proj": (INNER, WIDTH), "mlp.up_proj": (INNER, WIDTH), "mlp.down_proj": (WIDTH, INNER)}
    for layer in range(LAYERS):
        before = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{before}{norm}.weight"] = ones.clone()
        for name, (rows, columns) in shapes.items():
            weights[f"{before}{name}.weight"] = random(rows, columns, 1.7 * columns**-0.5)
    save_file(weights, str(Path(folder, "model.safetensors")), metadata={"format": "pt"})
    Path(folder, "config.json").write_text(json.dumps(CONFIG))


def prompts():
    import numpy
    random = numpy.random.default_rng(9)
    return [{"prompt_token_ids": random.integers(3, WORDS, length).tolist()} for length in LENGTHS]


def answers(model):
    """The tokens, and the logarithms of their probabilities."""
    from vllm import SamplingParams
    greedy = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True, logprobs=1, detokenize=False)
    # All requests are there before the first step: an engine in a process of its own would begin
    # with the first one alone now and then, and other batches have other roundings.
    model.sleep(level=0)
    model.enqueue(prompts(), greedy, use_tqdm=False)
    model.wake_up(tags=["scheduling"])
    outputs = [request.outputs[0] for request in model.wait_for_completion(use_tqdm=False)]
    tokens = [list(output.token_ids) for output in outputs]
    assert len({token for row in tokens for token in row}) > 100, "the model always says the same"
    return [tokens, [[step[token].logprob for token, step in zip(output.token_ids, output.logprobs)] for output in outputs]]


def serve(use, own_process=False, graphs=False, **more):
    """What `use` makes of a model: in eager mode, or compiled and with graphs of three batch sizes."""
    os.environ.update(SETTINGS, VLLM_ENABLE_V1_MULTIPROCESSING=str(int(own_process)))
    import logging
    from vllm import LLM, ModelRegistry
    from vllm.model_executor.models.llama import LlamaForCausalLM
    # Otherwise another process imports vLLM to look at the model's class.
    logging.getLogger("vllm.model_executor.models.registry").setLevel(logging.ERROR)
    ModelRegistry.register_model("LlamaForCausalLM", LlamaForCausalLM)
    if graphs:
        more["compilation_config"] = {"cudagraph_capture_sizes": [1, 2, 4]}
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder)
        model = LLM(
            model=folder, skip_tokenizer_init=True, dtype="bfloat16", max_model_len=512, max_num_seqs=4, max_num_batched_tokens=512, gpu_memory_utilization=0.05,
            kv_cache_memory_bytes=64 << 20, generation_config="vllm", disable_log_stats=True, seed=0, enable_flashinfer_autotune=False,
            enforce_eager=not graphs, **({"enable_prefix_caching": False} | more),
        )
        found = use(model)
    model.llm_engine.engine_core.shutdown()
    return found


def answers_around_sleep(model):
    """The same twice; between them the weights are on the host, and the card's memory is given back."""
    import torch
    before, (free, _) = answers(model), torch.cuda.mem_get_info()
    model.sleep(level=1)
    given_back = torch.cuda.mem_get_info()[0] - free
    assert given_back > 60 << 20, f"only {given_back} bytes were given back"
    model.wake_up()
    assert answers(model)[0] == before[0], "other tokens after the sleep"
    return before
