"""Programs of the ladder: engines and libraries that were built for CUDA 12, beside the CUDA 13 that PyTorch has. They are left out where their packages are missing; PYTHONPATH=SITE brings along what this has installed:

pip install --no-deps --target SITE ctranslate2==4.8.5 faster-whisper==1.2.1 av==19.0.2 faiss-gpu==1.15.1 xllamacpp-cuda12x==0.1.6 gguf==0.19.0 diskcache==5.6.3 spconv-cu126==2.3.8 cumm-cu126==0.7.11 pccm==0.4.16 ccimport==0.4.4 lark==1.3.1 fire==0.7.1 termcolor==3.3.0 portalocker==4.4.2 nvidia-cublas-cu12==12.6.4.1 nvidia-cuda-runtime-cu12==12.9.79 nvidia-curand-cu12==10.3.10.19
rm -f SITE/nvidia/__init__.py
pip install --no-deps --target ANOTHER lmdeploy==0.18.0 xformers==0.0.35 mmengine-lite==0.10.7 addict==2.4.0 yapf==0.43.0 platformdirs==4.14.8 termcolor==3.3.0 shortuuid==1.0.13 pybase64==1.5.1 partial-json-parser==0.2.1.1.post7 pydantic==2.14.4 pydantic-core==2.50.5 annotated-types==0.8.0 typing-inspection==0.4.5 fastapi==0.165.0 starlette==1.10.0 uvicorn==0.54.0 openai==3.57.0 openai-harmony==0.0.8 distro==1.9.0 jiter==0.19.0 sniffio==1.3.1 pyzmq==27.3.0 xgrammar==0.2.9 apache-tvm-ffi==0.1.11
pip install --no-deps --target THIRD open3d==0.20.0 plotly==7.1.0 dash==4.4.1 narwhals==2.29.0 janus==2.0.0 werkzeug==3.1.9 pydantic==2.14.4 pydantic-core==2.50.5 annotated-types==0.8.0 typing-inspection==0.4.5
pip download --no-deps --no-binary=:all: llama-cpp-python==0.3.8 && tar -xzf llama_cpp_python-0.3.8.tar.gz -C SITE --strip-components=1 llama_cpp_python-0.3.8/llama_cpp

ANOTHER needs SITE's cuBLAS. THIRD/libraries_of_debian holds what Open3D links to where a machine has no windows: the libraries of libegl1, libgl1, libglx0, libglvnd0, libx11-6, libxcb1, libxau6, libxdmcp6, libbsd0, libmd0, libudev1, libusb-1.0-0, libidn2-0 and libunistring2. Of llama-cpp-python only the Python files are taken: the llama.cpp that it calls is the one in xllamacpp's module, which is of the same week.

One file, although long: a list of programs, a few for each package.
"""

from programs_carried import needs
from programs_ready import seeded, torch_ready


def libraries_of_twelve():
    """Loads CUDA 12's runtime and cuBLAS, which programs here look for by name."""
    import ctypes
    import os
    from importlib.util import find_spec
    for place in find_spec("nvidia").submodule_search_locations:
        for name in ("cuda_runtime/lib/libcudart.so.12", "cublas/lib/libcublasLt.so.12", "cublas/lib/libcublas.so.12"):
            path = os.path.join(place, name)
            if os.path.exists(path):
                ctypes.CDLL(path, ctypes.RTLD_GLOBAL)


# --- CTranslate2: layers of its own from PTX, cuBLAS by dlopen, and an allocator of its own for each stream


class Weights:
    """Fills the layers of a model with random numbers of the right shape."""

    def __init__(self, seed=7):
        import numpy
        self.random = numpy.random.default_rng(seed)

    def normal(self, *shape, scale=1.0):
        return (self.random.normal(size=shape) * scale).astype("float32")

    def dense(self, layer, out, of):
        layer.weight, layer.bias = self.normal(out, of, scale=of ** -0.5), self.normal(out, scale=0.1)

    def norm(self, layer, size):
        layer.gamma = 1 + self.normal(size, scale=0.1)
        if hasattr(layer, "beta"):
            layer.beta = self.normal(size, scale=0.1)

    def attention(self, layer, size, size_of_keys):
        self.norm(layer.layer_norm, size)
        shapes = [(size + 2 * size_of_keys, size), (size, size)] if len(layer.linear) == 2 else [(size, size), (2 * size_of_keys, size), (size, size)]
        for linear, shape in zip(layer.linear, shapes):
            self.dense(linear, *shape)

    def layers(self, part, size, size_of_keys=None):
        for layer in part.layer:
            self.attention(layer.self_attention, size, size_of_keys or size)
            if hasattr(layer, "attention"):
                self.attention(layer.attention, size, size_of_keys or size)
            self.norm(layer.ffn.layer_norm, size)
            self.dense(layer.ffn.linear_0, 4 * size, size)
            self.dense(layer.ffn.linear_1, size, 4 * size)
            if hasattr(layer.ffn, "linear_0_noact"):
                self.dense(layer.ffn.linear_0_noact, 4 * size, size)
        self.norm(part.layer_norm, size)

    def words(self, part, words, size, places=None):
        for embeddings in part.embeddings if isinstance(part.embeddings, list) else [part.embeddings]:
            embeddings.weight = self.normal(words, size, scale=0.5)
        if places:
            part.position_encodings.encodings = self.normal(places, size, scale=0.1)
        if hasattr(part, "projection"):
            self.dense(part.projection, words, size)


WORDS = ["<blank>", "<s>", "</s>", "<unk>", *(f"word{at}" for at in range(508))]


def saved(spec, name):
    """The folder that a model is written to: one for each process."""
    import os
    name = f"{name}-{os.getpid()}"
    os.makedirs(name, exist_ok=True)
    spec.validate()
    spec.optimize()
    spec.save(name)
    return name


def translator_of_ours(size=128, heads=4):
    from ctranslate2 import specs
    weights, spec = Weights(), specs.TransformerSpec.from_config((3, 3), heads, activation=specs.Activation.SWISH, ffn_glu=True)
    for part in (spec.encoder, spec.decoder):
        weights.words(part, len(WORDS), size)
        weights.layers(part, size)
    spec.register_source_vocabulary(WORDS)
    spec.register_target_vocabulary(WORDS)
    return saved(spec, "translator")


def generator_of_ours(size=128, heads=4, heads_of_keys=2):
    from ctranslate2 import specs
    spec = specs.TransformerDecoderModelSpec.from_config(
        3, heads, activation=specs.Activation.SWISH, ffn_glu=True, rms_norm=True, rotary_dim=0, rotary_interleave=False, num_heads_kv=heads_of_keys)
    weights = Weights()
    weights.words(spec.decoder, len(WORDS), size)
    weights.layers(spec.decoder, size, size // heads * heads_of_keys)
    spec.register_vocabulary(WORDS)
    return saved(spec, "generator")


def sentences(count, seed=7, shortest=4, longest=24):
    import numpy
    random = numpy.random.default_rng(seed)
    return [[WORDS[at] for at in random.integers(4, len(WORDS), random.integers(shortest, longest))] for _ in range(count)]


def numbers_of_words(lists):
    import numpy
    return numpy.array([WORDS.index(word) for words in lists for word in words])


def engine_ready():
    libraries_of_twelve()
    import ctranslate2
    import numpy
    return ctranslate2, numpy


def translations(device, kinds):
    ctranslate2, numpy = engine_ready()
    found = []
    for kind in kinds:
        folder = translator_of_ours()
        translator = ctranslate2.Translator(folder, device=device, compute_type=kind)
        beams = translator.translate_batch(sentences(12), beam_size=4, num_hypotheses=3, length_penalty=0.6, return_scores=True, max_decoding_length=24, repetition_penalty=1.2)
        found += [numbers_of_words(words for one in beams for words in one.hypotheses), numpy.array([one.scores for one in beams])]
        greedy = translator.translate_batch(sentences(5, 8), beam_size=1, target_prefix=sentences(5, 9, 2, 4), return_scores=True, return_attention=True, max_decoding_length=16)
        found += [numbers_of_words(one.hypotheses[0] for one in greedy), numpy.array([one.scores[0] for one in greedy]), numpy.concatenate([numpy.ravel(one.attention[0]) for one in greedy])]
        scored = translator.score_batch(sentences(6, 10), sentences(6, 11))
        found += [numpy.concatenate([one.log_probs for one in scored])]
    return found


@needs("ctranslate2")
def ctranslate2_translates_with_beams():
    return translations("cuda", ("float32", "float16", "bfloat16"))


@needs("ctranslate2")
def ctranslate2_translates_in_eight_bits():
    return translations("cuda", ("int8_float32", "int8_float16"))


def generations(device, kinds):
    ctranslate2, numpy = engine_ready()
    found = []
    for kind in kinds:
        generator = ctranslate2.Generator(generator_of_ours(), device=device, compute_type=kind)
        logits = generator.forward_batch(sentences(6), return_log_probs=True)
        found.append(numpy.array(logits.to_device(ctranslate2.Device.cpu).to(ctranslate2.DataType.float32)))
        greedy = generator.generate_batch(sentences(9), max_length=32, include_prompt_in_result=False, return_scores=True, min_length=8)
        found += [numbers_of_words(one.sequences[0] for one in greedy), numpy.array([one.scores[0] for one in greedy])]
        ctranslate2.set_random_seed(7)
        drawn = generator.generate_batch(sentences(4), max_length=24, sampling_topk=20, sampling_temperature=0.8, num_hypotheses=2)
        found += [numbers_of_words(words for one in drawn for words in one.sequences)]
        steps = list(generator.generate_tokens(sentences(1)[0], max_length=16, sampling_topk=1, return_log_prob=True))
        found += [numpy.array([[step.token_id, step.log_prob] for step in steps])]
    return found


@needs("ctranslate2")
def ctranslate2_generates():
    return generations("cuda", ("float32", "float16", "int8_float16"))


def encodings(device, kinds, as_array):
    ctranslate2, numpy = engine_ready()
    from ctranslate2 import specs
    spec = specs.TransformerEncoderModelSpec(specs.TransformerEncoderSpec(3, 4, activation=specs.Activation.GELU), pooling_layer=True, pooling_activation=specs.Activation.Tanh)
    weights = Weights()
    weights.words(spec.encoder, len(WORDS), 128, places=64)
    weights.layers(spec.encoder, 128)
    weights.dense(spec.pooler_dense, 128, 128)
    spec.register_vocabulary(WORDS)
    folder, found = saved(spec, "encoder"), []
    for kind in kinds:
        encoder = ctranslate2.Encoder(folder, device=device, compute_type=kind)
        out = encoder.forward_batch(sentences(7))
        found += [as_array(part) for part in (out.last_hidden_state, out.pooler_output)]
    return found


@needs("ctranslate2")
def ctranslate2_encodes():
    torch = torch_ready()
    return encodings("cuda", ("float32", "float16"), lambda part: torch.as_tensor(part, device="cuda").clone())


def translations_side_by_side(device, kind):
    """Two copies of a model with a stream each, questions that wait, and weights that go to the host and come back."""
    ctranslate2, numpy = engine_ready()
    translator = ctranslate2.Translator(translator_of_ours(), device=device, compute_type=kind, inter_threads=2, max_queued_batches=-1)

    def asked():
        waiting = translator.translate_batch(sentences(40), beam_size=2, max_decoding_length=12, max_batch_size=4, asynchronous=True, return_scores=True)
        results = [one.result() for one in waiting]
        return [numbers_of_words(one.hypotheses[0] for one in results), numpy.array([one.scores[0] for one in results])]

    found = asked()
    translator.unload_model(to_cpu=True)
    translator.load_model()
    return found + asked()


@needs("ctranslate2")
def ctranslate2_side_by_side():
    return translations_side_by_side("cuda", "float16")


@needs("ctranslate2")
def ctranslate2_with_memory_in_order():
    """Memory from cudaMallocAsync, in place of the allocator that keeps blocks."""
    import os
    os.environ["CT2_CUDA_ALLOCATOR"] = "cuda_malloc_async"
    return translations_side_by_side("cuda", "int8_float16")


LANGUAGES = ("en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so "
             "af oc ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su").split()
WORDS_OF_SPEECH = [*(f"w{at}" for at in range(50257)), "<|endoftext|>", "<|startoftranscript|>", *(f"<|{name}|>" for name in LANGUAGES), "<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>",
                   "<|nospeech|>", "<|notimestamps|>", *(f"<|{at * 0.02:.2f}|>" for at in range(1501))]


def listener_of_ours(size=64, heads=2):
    """A model of the shape of Whisper, with all its words and few layers."""
    from ctranslate2 import specs
    weights, spec = Weights(), specs.WhisperSpec(2, heads, 2, heads)
    spec.encoder.conv1.weight, spec.encoder.conv1.bias = weights.normal(size, 80, 3, scale=0.1), weights.normal(size, scale=0.1)
    spec.encoder.conv2.weight, spec.encoder.conv2.bias = weights.normal(size, size, 3, scale=0.1), weights.normal(size, scale=0.1)
    spec.encoder.position_encodings.encodings = weights.normal(1500, size, scale=0.1)
    weights.words(spec.decoder, len(WORDS_OF_SPEECH), size, places=448)
    for part in (spec.encoder, spec.decoder):
        weights.layers(part, size)
    spec.register_vocabulary(WORDS_OF_SPEECH)
    spec.config.suppress_ids, spec.config.suppress_ids_begin = [1, 2, 7], [220, 50257]
    spec.config.lang_ids = [WORDS_OF_SPEECH.index(f"<|{name}|>") for name in LANGUAGES]
    spec.config.alignment_heads = [(0, 0), (1, 1)]
    return saved(spec, "listener")


def heard(device, kinds):
    ctranslate2, numpy = engine_ready()
    folder, found = listener_of_ours(), []
    features = numpy.random.default_rng(7).normal(size=(2, 80, 3000)).astype("float32")
    start = [WORDS_OF_SPEECH.index(word) for word in ("<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>")]
    for kind in kinds:
        model = ctranslate2.models.Whisper(folder, device=device, compute_type=kind)
        encoded = model.encode(ctranslate2.StorageView.from_array(features), to_cpu=True)
        found.append(numpy.array(encoded.to(ctranslate2.DataType.float32)))
        spoken = model.generate(ctranslate2.StorageView.from_array(features), [start, start], beam_size=3, max_length=24, return_scores=True, return_no_speech_prob=True)
        found += [numpy.array([token for one in spoken for token in one.sequences_ids[0]]), numpy.array([[one.scores[0], one.no_speech_prob] for one in spoken])]
        aligned = model.align(ctranslate2.StorageView.from_array(features), start, [[5, 6, 7, 8], [9, 10]], [3000, 2000])
        found.append(numpy.array([pair for one in aligned for pair in one.alignments]))
    return found


@needs("ctranslate2")
def ctranslate2_hears():
    return heard("cuda", ("float32", "float16", "int8_float16"))


def written_down(device, kind):
    """What faster-whisper makes of half a minute of noise and whistles."""
    import json
    import os
    ctranslate2, numpy = engine_ready()
    folder = listener_of_ours()
    tokens = {word: at for at, word in enumerate(WORDS_OF_SPEECH)}
    special = [{"id": at, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for word, at in tokens.items() if word.startswith("<|")]
    with open(os.path.join(folder, "tokenizer.json"), "w") as file:
        json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
                   "model": {"type": "WordLevel", "vocab": tokens, "unk_token": "w0"}}, file)
    import faster_whisper
    model = faster_whisper.WhisperModel(folder, device=device, compute_type=kind, local_files_only=True)
    times = numpy.arange(16000 * 12) / 16000
    sound = 0.3 * numpy.sin(2 * numpy.pi * 440 * times * (1 + 0.1 * numpy.sin(times))) + 0.05 * numpy.random.default_rng(7).normal(size=times.size)
    segments, told = model.transcribe(sound.astype("float32"), language="en", beam_size=3, temperature=0.0, condition_on_previous_text=False, max_new_tokens=24, no_speech_threshold=None, log_prob_threshold=None,
                                      compression_ratio_threshold=None)
    found = []
    for segment in segments:
        found += [numpy.array(segment.tokens), numpy.array([segment.start, segment.end, segment.avg_logprob, segment.no_speech_prob])]
        if len(found) > 8:
            break
    return [*found, numpy.array([told.duration])]


@needs("faster_whisper")
def faster_whisper_writes_down():
    return written_down("cuda", "float16")


# --- llama.cpp: kernels from PTX, virtual memory for its pool, graphs of each step, and weights mapped from a file


def llama_ready():
    """The Python files of llama-cpp-python, with the library in xllamacpp's module; that one leaves out what its own program does not call."""
    import ctypes
    import os
    import sys
    from glob import glob
    from importlib.util import find_spec, module_from_spec, spec_from_file_location
    libraries_of_twelve()
    ctypes.CDLL("libcuda.so.1", ctypes.RTLD_GLOBAL)
    library = glob(os.path.join(find_spec("xllamacpp").submodule_search_locations[0], "xllamacpp.*.so"))[0]
    ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
    os.makedirs("library", exist_ok=True)
    if not os.path.lexists("library/libllama.so"):
        try:
            os.symlink(library, "library/libllama.so")
        except FileExistsError:
            pass
    os.environ["LLAMA_CPP_LIB_PATH"] = os.path.abspath("library")
    name = "llama_cpp._ctypes_extensions"
    spec = spec_from_file_location(name, os.path.join(find_spec("llama_cpp").submodule_search_locations[0], "_ctypes_extensions.py"))
    sys.modules[name] = extensions = module_from_spec(spec)
    spec.loader.exec_module(extensions)
    function_for = extensions.ctypes_function_for_shared_library

    def function_if_there(library):
        declare = function_for(library)
        return lambda name, *kinds, **more: declare(name, *kinds, **more) if hasattr(library, name) else lambda function: function

    extensions.ctypes_function_for_shared_library = function_if_there
    import llama_cpp
    import numpy
    return llama_cpp, numpy


def llama_of_ours(kind, experts=0, size=256, heads=8, heads_of_keys=2, layers=3, inner=512, words=512):
    """A model with random weights of that kind."""
    import os
    import gguf
    import numpy
    path = f"llama-{kind}-{experts}.gguf"
    random, writer = numpy.random.default_rng(7), gguf.GGUFWriter(f"{path}.{os.getpid()}", "llama")
    quantized = gguf.GGMLQuantizationType[kind]
    writer.add_context_length(512)
    writer.add_embedding_length(size)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads_of_keys)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(size // heads)
    writer.add_vocab_size(words)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(2)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{at:02X}>" for at in range(256)), *(f"▁w{at}" for at in range(words - 259))]
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL] + [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.NORMAL] * (words - 259)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(at) for at in range(words)])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)

    def add(name, *shape, exact=False):
        values = (random.normal(size=shape) * (0.02 if exact else shape[-1] ** -0.5)).astype("float32")
        if exact:
            writer.add_tensor(name, values + 1)
        else:
            writer.add_tensor(name, gguf.quants.quantize(values, quantized), raw_dtype=quantized)

    add("token_embd.weight", words, size)
    add("output_norm.weight", size, exact=True)
    add("output.weight", words, size)
    of_keys = size // heads * heads_of_keys
    for at in range(layers):
        for name in ("attn_norm", "ffn_norm"):
            add(f"blk.{at}.{name}.weight", size, exact=True)
        for name, out in (("attn_q", size), ("attn_k", of_keys), ("attn_v", of_keys), ("attn_output", size)):
            add(f"blk.{at}.{name}.weight", out, size)
        if experts:
            values = random.normal(size=(experts, size)).astype("float32")
            writer.add_tensor(f"blk.{at}.ffn_gate_inp.weight", values)
        some = (experts,) if experts else ()
        for name, out, of in (("ffn_gate", inner, size), ("ffn_up", inner, size), ("ffn_down", size, inner)):
            add(f"blk.{at}.{name}{'_exps' if experts else ''}.weight", *some, out, of)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(f"{path}.{os.getpid()}", path)
    return path


def llama_answers(layers_on_card, kinds, experts=0):
    """Numbers after each word of a question, words that follow it one by one, and the same from a state that was kept."""
    llama_cpp, numpy = llama_ready()
    found = []
    for kind in kinds:
        model = llama_cpp.Llama(llama_of_ours(kind, experts), n_gpu_layers=layers_on_card, n_ctx=256, n_batch=64, logits_all=True, seed=7, verbose=False, n_threads=2)
        question = numpy.random.default_rng(8).integers(259, 512, 100).tolist()
        model.eval(question)
        found.append(model.scores[:100].copy())
        kept = model.save_state()
        for _ in range(2):
            words = []
            for word in model.generate(question, top_k=1, temp=0.0, repeat_penalty=1.0, reset=False):
                words.append(word)
                if len(words) == 24:
                    break
            found += [numpy.array(words), model.scores[100:110].copy()]
            model.load_state(kept)
        drawn = model.create_completion(question[:20], max_tokens=16, temperature=0.8, top_k=20, seed=7, logprobs=3)
        found.append(numpy.array([chance for chance in drawn["choices"][0]["logprobs"]["token_logprobs"] if chance is not None]))
        model.close()
    return found


@needs("llama_cpp")
def llama_cpp_answers():
    return llama_answers(-1, ("F32", "F16"))


@needs("llama_cpp")
def llama_cpp_answers_with_few_bits():
    return llama_answers(-1, ("Q8_0", "Q4_0", "Q5_1"))


@needs("llama_cpp")
def llama_cpp_experts():
    return llama_answers(-1, ("F16", "Q4_0"), experts=4)


@needs("llama_cpp")
def llama_cpp_half_on_the_card():
    """Two of the layers on the card, the rest on the processor."""
    return llama_answers(2, ("F16",))


def llama_meanings(layers_on_card):
    """One vector for each of several texts that go through together."""
    llama_cpp, numpy = llama_ready()
    model = llama_cpp.Llama(llama_of_ours("F16"), n_gpu_layers=layers_on_card, n_ctx=256, n_batch=256, embedding=True, pooling_type=llama_cpp.LLAMA_POOLING_TYPE_MEAN, verbose=False, n_threads=2)
    texts = [" ".join(f"w{at}" for at in numpy.random.default_rng(seed).integers(0, 200, 6 + seed)) for seed in range(8)]
    return [numpy.array(model.embed(texts, normalize=True))]


@needs("llama_cpp")
def llama_cpp_meanings():
    return llama_meanings(-1)


# --- Faiss: searches in memory that it keeps for each stream, with cuBLAS and kernels of its own


def points(count, size=64, seed=7):
    import numpy
    return numpy.random.default_rng(seed).normal(size=(count, size)).astype("float32")


@needs("faiss")
def faiss_compares_all():
    import faiss
    import numpy
    resources, found = faiss.StandardGpuResources(), []
    resources.setTempMemory(64 << 20)
    for kind in (faiss.GpuIndexFlatL2, faiss.GpuIndexFlatIP):
        for half in (False, True):
            settings = faiss.GpuIndexFlatConfig()
            settings.useFloat16 = half
            index = kind(resources, 64, settings)
            index.add(points(20_000))
            found += [*index.search(points(200, seed=8), 10), index.reconstruct_n(100, 5)]
    wanted = faiss.IndexFlatL2(64)
    wanted.add(points(20_000))
    assert numpy.array_equal(wanted.search(points(200, seed=8), 1)[1], found[1][:, :1])
    for metric in (faiss.METRIC_L1, faiss.METRIC_Linf):
        found += faiss.knn_gpu(resources, points(50, seed=9), points(5000), 5, metric=metric)
    bits = numpy.random.default_rng(7).integers(0, 256, (5000, 32)).astype("uint8")
    binary = faiss.GpuIndexBinaryFlat(resources, 256)
    binary.add(bits)
    near = binary.search(bits[:40] ^ 1, 8)[0]
    return [*found, near]


@needs("faiss")
def faiss_cells_and_codes():
    """Cells found by k-means, codes of few bits in them, and indexes that go to the card and back."""
    import faiss
    import numpy
    resources, found = faiss.StandardGpuResources(), []
    resources.setTempMemory(64 << 20)
    data, asked = points(20_000), points(100, seed=8)
    flat = faiss.GpuIndexIVFFlat(resources, 64, 64, faiss.METRIC_L2)
    codes = faiss.GpuIndexIVFPQ(resources, 64, 64, 16, 8, faiss.METRIC_L2)
    scalar = faiss.GpuIndexIVFScalarQuantizer(resources, 64, 64, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_L2, True)
    for index in (flat, codes, scalar):
        index.train(data)
        index.add(data)
        index.nprobe = 12
        found.append(index.search(asked, 10)[0])
    back = faiss.index_gpu_to_cpu(flat)
    assert back.ntotal == 20_000
    again = faiss.index_cpu_to_gpu(resources, 0, back)
    again.nprobe = 12
    distances = again.search(asked, 10)[0]
    assert numpy.allclose(distances, found[0], rtol=1e-3)
    return [*found, distances]


@needs("faiss")
def faiss_means():
    """k-means, with its points on the card, and products of its own for PyTorch's tensors."""
    import faiss
    import numpy
    found = []
    for spherical in (False, True):
        means = faiss.Kmeans(64, 50, niter=12, seed=7, gpu=1, spherical=spherical, min_points_per_centroid=5)
        means.train(points(10_000))
        found += [means.obj, numpy.sort(means.centroids, axis=0), means.index.search(points(50, seed=8), 1)[0]]
    return found


# --- spconv: convolutions over few places of a volume, with kernels of CUTLASS's kind


@needs("spconv")
def spconv_layers_that_learn():
    torch = torch_ready()
    import numpy
    import spconv.pytorch as sparse
    random = numpy.random.default_rng(7)
    places = numpy.unique(numpy.concatenate([random.integers(0, 2, (4000, 1)), random.integers(0, 32, (4000, 3))], axis=1), axis=0).astype("int32")
    found = []
    for kind in (torch.float32, torch.float16):
        torch.manual_seed(7)
        network = sparse.SparseSequential(
            sparse.SubMConv3d(8, 16, 3, indice_key="first", algo=sparse.ConvAlgo.Native), torch.nn.ReLU(), sparse.SparseConv3d(16, 32, 3, stride=2, padding=1, indice_key="down", algo=sparse.ConvAlgo.Native), torch.nn.ReLU(),
            sparse.SubMConv3d(32, 32, 3, indice_key="second", algo=sparse.ConvAlgo.Native), sparse.SparseInverseConv3d(32, 8, 3, indice_key="down", algo=sparse.ConvAlgo.Native)).cuda().to(kind)
        x = torch.from_numpy(random.normal(size=(len(places), 8)).astype("float32")).to("cuda", kind).requires_grad_()
        out = network(sparse.SparseConvTensor(x, torch.from_numpy(places).cuda(), [32, 32, 32], 2))
        loss = out.features.float().square().mean()
        loss.backward()
        # The places come in an order that differs from run to run.
        found += [loss.detach().reshape(1), out.dense().float().sum(dim=(2, 3, 4)), x.grad.float().sum(dim=0), network[0].weight.grad.float()]
    return found


@needs("spconv")
def spconv_products_by_masks():
    torch = torch_ready()
    import numpy
    import spconv.pytorch as sparse
    random = numpy.random.default_rng(8)
    places = numpy.unique(numpy.concatenate([numpy.zeros((3000, 1)), random.integers(0, 24, (3000, 3))], axis=1), axis=0).astype("int32")
    torch.manual_seed(8)
    layers = sparse.SparseSequential(sparse.SubMConv3d(16, 32, 3, algo=sparse.ConvAlgo.MaskImplicitGemm), sparse.SparseMaxPool3d(2, 2)).cuda().half()
    x = torch.from_numpy(random.normal(size=(len(places), 16)).astype("float32")).cuda().half()
    with torch.no_grad():
        out = layers(sparse.SparseConvTensor(x, torch.from_numpy(places).cuda(), [24, 24, 24], 1))
    assert out.features.shape[1] == 32
    return [out.dense().float()]


# --- LMDeploy: an engine in C++ with a thread, memory and products of its own


def write_words(folder, count):
    """A tokenizer of that many words, which only has to be there."""
    import json
    import os
    words = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"w{at}": at for at in range(3, count)}
    kinds = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    special = [{"id": words[word], "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for word in kinds.values()]
    with open(os.path.join(folder, "tokenizer.json"), "w") as file:
        json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
                   "model": {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"}}, file)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", **kinds}, file)


def turbomind_answers(**settings):
    """Questions one after the other, with the numbers of each step, and then several at a time."""
    import asyncio
    import os
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    libraries_of_twelve()
    torch_ready()
    import numpy
    from lmdeploy import GenerationConfig, TurbomindEngineConfig
    from lmdeploy.turbomind.turbomind import TurboMind
    from vllm_models_of_ours import Sizes, prompts, write_model
    sizes, folder = Sizes(), f"turbomind-{os.getpid()}"
    os.makedirs(folder)
    write_model(folder, sizes)
    write_words(folder, sizes.words)
    engine = TurboMind.from_pretrained(folder, engine_config=TurbomindEngineConfig(max_batch_size=4, session_len=512, cache_max_entry_count=0.02, max_prefill_token_num=512, enable_metrics=False, **settings))
    questions = [one["prompt_token_ids"] for one in prompts(sizes)]
    how = GenerationConfig(max_new_tokens=24, do_sample=False, top_k=1, temperature=1.0, ignore_eos=True, output_logits="generation")

    async def answer(at, how):
        words, logits = [], None
        async for part in engine.create_instance().async_stream_infer(at, questions[at], gen_config=how, stream_output=False):
            assert part.status.name in ("SUCCESS", "FINISH"), part.status
            words += part.token_ids
            logits = part.logits if part.logits is not None else logits
        return words, logits

    async def all_of_them():
        alone = [await answer(at, how) for at in range(len(questions))]
        quick = GenerationConfig(max_new_tokens=24, do_sample=False, top_k=1, temperature=1.0, ignore_eos=True)
        return alone, await asyncio.gather(*(answer(at, quick) for at in range(len(questions))))

    alone, together = asyncio.run(all_of_them())
    assert all(len(words) == 24 for words, _ in [*alone, *together])
    found = [numpy.array([words for words, _ in alone]), *(logits.float().cpu() for _, logits in alone[:4])]
    engine.close()
    return found


@needs("lmdeploy")
def lmdeploy_answers():
    return turbomind_answers()


@needs("lmdeploy")
def lmdeploy_answers_with_small_caches():
    """Keys and values of eight bits, prompts in parts, and prefixes that are kept."""
    return turbomind_answers(quant_policy=8, num_tokens_per_iter=64, max_prefill_iters=8, enable_prefix_caching=True)


# --- xFormers: attention over sequences of many lengths, and sparse halves


@needs("xformers")
def xformers_attention_and_layers():
    libraries_of_twelve()
    torch = torch_ready()
    torch.use_deterministic_algorithms(False)
    import xformers.ops as ops
    lengths, found = [5, 64, 33, 100], []
    q, k, v = (seeded(torch, 1, sum(lengths), 4, 64, dtype=torch.bfloat16) for _ in range(3))
    for bias in (ops.fmha.attn_bias.BlockDiagonalMask.from_seqlens(lengths), ops.fmha.attn_bias.BlockDiagonalCausalMask.from_seqlens(lengths)):
        found.append(ops.memory_efficient_attention(q, k, v, attn_bias=bias))
    found.append(ops.memory_efficient_attention(*(part[:, :64].half() for part in (q, k, v)), attn_bias=ops.LowerTriangularMask()))
    thin = ops.sparsify24(seeded(torch, 256, 256, dtype=torch.float16))
    norm = ops.RMSNorm(128).cuda().requires_grad_(False)
    return [*found, thin.packed, thin.packed_t, norm(seeded(torch, 64, 128)), ops.index_select_cat([seeded(torch, 30, 96)], [torch.randperm(30)[:12].cuda()])]


# --- Open3D: points and volumes, with hash maps and searches on the card


def open3d_ready():
    """The libraries for windows that it links to, which it does not use here, lie beside it."""
    import ctypes
    import os
    from importlib.util import find_spec
    beside = os.path.join(os.path.dirname(os.path.dirname(find_spec("open3d").origin)), "libraries_of_debian")
    for name in ("md.so.0", "bsd.so.0", "Xau.so.6", "Xdmcp.so.6", "xcb.so.1", "X11.so.6", "GLdispatch.so.0", "GLX.so.0", "GL.so.1", "EGL.so.1", "udev.so.1", "usb-1.0.so.0", "unistring.so.2", "idn2.so.0"):
        if os.path.exists(os.path.join(beside, f"lib{name}")):
            ctypes.CDLL(os.path.join(beside, f"lib{name}"), ctypes.RTLD_GLOBAL)
    import numpy
    import open3d
    return open3d, open3d.core, numpy, numpy.random.default_rng(7)


def tensors_of_open3d(place):
    open3d, core, numpy, random = open3d_ready()
    device, found = core.Device(place), []
    a, b = (core.Tensor(random.normal(size=(40, 40)), device=device) for _ in range(2))
    found += [a.matmul(b), a.solve(b), a.inv(), a.sum(0), a.max(1), a.argmin(0), (a.abs().sqrt() + b.exp() * 2 - b).T().contiguous(), a[a > 1.5].sum(), a[3:30:4]]
    found.append(core.svd(a)[1])
    keys = core.Tensor(random.integers(0, 20, (2000, 3)), core.int32, device)
    values = core.Tensor(numpy.arange(2000), core.int64, device)
    table = core.HashMap(4000, core.int32, (3,), core.int64, (1,), device)
    table.insert(keys, values.reshape((2000, 1)))
    places, there = table.find(core.Tensor(random.integers(0, 25, (500, 3)), core.int32, device))
    found += [there.to(core.int32), core.Tensor([table.size()]), table.key_tensor()[table.active_buf_indices().to(core.int64)].to(core.int64).sum(0)]
    search = core.nns.NearestNeighborSearch(core.Tensor(random.random((3000, 3)), core.float32, device))
    search.knn_index()
    near, far = search.knn_search(core.Tensor(random.random((200, 3)), core.float32, device), 5)
    search.fixed_radius_index(0.1)
    counts = search.fixed_radius_search(core.Tensor(random.random((200, 3)), core.float32, device), 0.1)[2]
    return [part.cpu().numpy() for part in [*found, near, far, counts]]


@needs("open3d")
def open3d_tensors_and_searches():
    return tensors_of_open3d("CUDA:0")


def clouds_of_open3d(place):
    """Points of a bumpy sheet that find back to where they were, and depths that become a volume."""
    open3d, core, numpy, random = open3d_ready()
    device = core.Device(place)
    flat = random.random((4000, 2)) * 2 - 1
    sheet = numpy.column_stack([flat, 0.3 * numpy.sin(3 * flat[:, 0]) * numpy.cos(2 * flat[:, 1])]).astype("float32")
    cloud = open3d.t.geometry.PointCloud(core.Tensor(sheet, device=device))
    cloud.estimate_normals(max_nn=20)
    angle = 0.05
    turn = numpy.array([[numpy.cos(angle), -numpy.sin(angle), 0, 0.03], [numpy.sin(angle), numpy.cos(angle), 0, -0.02], [0, 0, 1, 0.04], [0, 0, 0, 1]])
    moved = cloud.clone().transform(core.Tensor(turn))
    registration = open3d.t.pipelines.registration
    result = registration.icp(moved, cloud, 0.2, core.Tensor(numpy.eye(4)), registration.TransformationEstimationPointToPlane(), registration.ICPConvergenceCriteria(max_iteration=30))
    assert abs(result.transformation.cpu().numpy() @ turn - numpy.eye(4)).max() < 0.02
    thin = cloud.voxel_down_sample(0.1)
    found = [result.transformation, core.Tensor([result.fitness, result.inlier_rmse]), abs_of(cloud.point.normals), thin.point.positions.sum(0), core.Tensor([len(thin.point.positions)]), cloud.get_min_bound(), cloud.get_center()]
    # A volume from the depths that a camera would see.
    columns, rows = numpy.meshgrid(numpy.arange(160), numpy.arange(120))
    depth = open3d.t.geometry.Image(core.Tensor((1000 + 80 * numpy.sin(columns / 20) * numpy.cos(rows / 15)).astype("uint16")[..., None], device=device))
    camera = core.Tensor(numpy.array([[150.0, 0, 80], [0, 150.0, 60], [0, 0, 1]]))
    volume = open3d.t.geometry.VoxelBlockGrid(("tsdf", "weight"), (core.float32, core.float32), ((1,), (1,)), 0.02, 8, 2000, device)
    for shift in (0.0, 0.01):
        pose = core.Tensor(numpy.array([[1, 0, 0, shift], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]]))
        blocks = volume.compute_unique_block_coordinates(depth, camera, pose, 1000.0, 3.0)
        volume.integrate(blocks, depth, camera, pose, 1000.0, 3.0)
    surface = volume.extract_point_cloud(weight_threshold=1.0)
    count = len(surface.point.positions)
    assert count > 100
    return [part.cpu().numpy() for part in [*found, core.Tensor([count, volume.hashmap().size()]), surface.point.positions.sum(0)]]


def abs_of(tensor):
    return tensor.abs()


@needs("open3d")
def open3d_clouds_and_volumes():
    return clouds_of_open3d("CUDA:0")
