"""Llamas with random weights, served by vLLM: greedy tokens of prompts, of which four run at a time."""

import json
import logging
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

SETTINGS = {
    "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
    "VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_USE_DEEP_GEMM": "0", "VLLM_PLUGINS": "", "VLLM_DISABLE_COMPILE_CACHE": "1", "VLLM_USE_AOT_COMPILE": "0",
    "VLLM_LOGGING_LEVEL": "WARNING", "VLLM_HOST_IP": "127.0.0.1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn", "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1",
}
TOKENS, LENGTHS = 64, (3, 7, 16, 17, 33, 64, 100, 129)
# Graphs of steps of one token, without a compiler.
STEPS_IN_GRAPHS = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 2, 4]}
COMPILED_IN_GRAPHS = {"cudagraph_capture_sizes": [1, 2, 4]}


class Sizes(NamedTuple):
    words: int = 2048
    width: int = 256
    layers: int = 4
    heads: int = 8
    shared_heads: int = 4
    head: int = 64
    inner: int = 512

    def config(self):
        return {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": self.words, "hidden_size": self.width, "intermediate_size": self.inner,
            "num_hidden_layers": self.layers, "num_attention_heads": self.heads, "num_key_value_heads": self.shared_heads, "head_dim": self.head,
            "max_position_embeddings": 1024, "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "attention_bias": False, "mlp_bias": False,
            "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
        }

    def matrices(self):
        """The shapes of a layer's, by name."""
        query, key = self.heads * self.head, self.shared_heads * self.head
        attention = {"q_proj": (query, self.width), "k_proj": (key, self.width), "v_proj": (key, self.width), "o_proj": (self.width, query)}
        network = {"gate_proj": (self.inner, self.width), "up_proj": (self.inner, self.width), "down_proj": (self.width, self.inner)}
        return {f"self_attn.{name}": shape for name, shape in attention.items()} | {f"mlp.{name}": shape for name, shape in network.items()}


def write_model(folder, sizes):
    import torch
    from safetensors.torch import save_file
    source = torch.Generator().manual_seed(1234)

    def random(rows, columns, scale):
        return (torch.randn(rows, columns, generator=source) * scale).bfloat16()

    ones = torch.ones(sizes.width).bfloat16()
    weights = {"model.embed_tokens.weight": random(sizes.words, sizes.width, 1.0), "model.norm.weight": ones}
    weights["lm_head.weight"] = random(sizes.words, sizes.width, 4 * sizes.width**-0.5)
    for layer in range(sizes.layers):
        before = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{before}{norm}.weight"] = ones.clone()
        for name, (rows, columns) in sizes.matrices().items():
            weights[f"{before}{name}.weight"] = random(rows, columns, 1.7 * columns**-0.5)
    save_file(weights, str(Path(folder, "model.safetensors")), metadata={"format": "pt"})
    Path(folder, "config.json").write_text(json.dumps(sizes.config()))


def prompts(sizes=Sizes(), lengths=LENGTHS):
    import numpy
    random = numpy.random.default_rng(9)
    return [{"prompt_token_ids": random.integers(3, sizes.words, length).tolist()} for length in lengths]


def make_engine(sizes=Sizes(), graphs=None, own_process=False, **more):
    """vLLM with such a model; `graphs` is its way to compile, none in eager mode."""
    os.environ.update(SETTINGS, VLLM_ENABLE_V1_MULTIPROCESSING=str(int(own_process)))
    from vllm import LLM, ModelRegistry
    from vllm.model_executor.models.llama import LlamaForCausalLM
    # Otherwise another process imports vLLM to look at the model's class.
    logging.getLogger("vllm.model_executor.models.registry").setLevel(logging.ERROR)
    ModelRegistry.register_model("LlamaForCausalLM", LlamaForCausalLM)
    settings = {
        "skip_tokenizer_init": True, "dtype": "bfloat16", "max_model_len": 512, "max_num_seqs": 4, "max_num_batched_tokens": 512, "gpu_memory_utilization": 0.05,
        "kv_cache_memory_bytes": 64 << 20, "enable_prefix_caching": False, "generation_config": "vllm", "disable_log_stats": True, "seed": 0,
        "enable_flashinfer_autotune": False, "enforce_eager": graphs is None,
    }
    if graphs:
        settings["compilation_config"] = graphs
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, sizes)
        return LLM(model=folder, **settings | more)


def greedy(tokens, **more):
    from vllm import SamplingParams
    return SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False, **more)


def tokens_of(engine, requests, tokens):
    return [list(request.outputs[0].token_ids) for request in engine.generate(requests, greedy(tokens), use_tqdm=False)]


def answers(engine):
    """The tokens, and the logarithms of their probabilities."""
    # All requests are there before the first step: an engine in a process of its own would begin
    # with the first one alone now and then, and other batches have other roundings.
    engine.sleep(level=0)
    engine.enqueue(prompts(), greedy(TOKENS, logprobs=1), use_tqdm=False)
    engine.wake_up(tags=["scheduling"])
    outputs = [request.outputs[0] for request in engine.wait_for_completion(use_tqdm=False)]
    tokens = [list(output.token_ids) for output in outputs]
    assert len({token for row in tokens for token in row}) > 100, "the model always says the same"
    return [tokens, [[step[token].logprob for token, step in zip(output.token_ids, output.logprobs)] for output in outputs]]


def answers_around_sleep(engine):
    """The same twice; between them the weights are on the host, and the card's memory is given back."""
    import torch
    before, (free, _) = answers(engine), torch.cuda.mem_get_info()
    engine.sleep(level=1)
    given_back = torch.cuda.mem_get_info()[0] - free
    assert given_back > 60 << 20, f"only {given_back} bytes were given back"
    engine.wake_up()
    assert answers(engine)[0] == before[0], "other tokens after the sleep"
    return before


def serve(use, **settings):
    """What `use` makes of an engine."""
    engine = make_engine(**settings)
    found = use(engine)
    engine.llm_engine.engine_core.shutdown()
    return found
