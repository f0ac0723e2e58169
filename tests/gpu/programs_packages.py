"""Programs of the ladder: the packages that people train and serve with, on models made from their configurations with random weights. programs_run.py runs one."""

import os
import tempfile

from programs_ready import case, jax_ready, seeded, torch_ready


def transformers_ready():
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    torch = torch_ready()
    import transformers
    return torch, transformers


def precise_jax():
    jax, np, x = jax_ready()
    jax.config.update("jax_default_matmul_precision", "highest")
    return jax, np, x


def train(torch, model, loss_of, steps=3, rate=0.01):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=rate, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().float())
    return torch.stack(losses)


def tokens(torch, rows, length, words=500):
    return torch.randint(3, words, (rows, length)).to("cuda")


# --- Images


@case
def timm_vit_half():
    torch = torch_ready()
    import timm
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=20).half().cuda().eval()
    x = seeded(torch, 4, 3, 224, 224, dtype=torch.float16)
    with torch.no_grad():
        return [model(x), model.forward_features(x)]


@case
def timm_convnext_bfloat_training():
    torch = torch_ready()
    import timm
    model = timm.create_model("convnext_tiny", pretrained=False, num_classes=10, drop_path_rate=0.0, depths=(1, 1, 2, 1)).cuda().to(memory_format=torch.channels_last)
    x, y = seeded(torch, 8, 3, 64, 64).to(memory_format=torch.channels_last), torch.arange(8, device="cuda")

    def loss():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return torch.nn.functional.cross_entropy(model(x), y)

    return [train(torch, model, loss)]


@case
def timm_efficientnet_training():
    torch = torch_ready()
    import timm
    model = timm.create_model("efficientnet_b0", pretrained=False, num_classes=10, drop_rate=0.0, drop_path_rate=0.0).cuda().to(memory_format=torch.channels_last)
    x, y = seeded(torch, 8, 3, 64, 64).to(memory_format=torch.channels_last), torch.arange(8, device="cuda")
    return [train(torch, model, lambda: torch.nn.functional.cross_entropy(model(x), y))]


@case
def torchvision_operators():
    torch = torch_ready()
    from torchvision import ops
    corners = torch.rand(300, 2).to("cuda") * 50
    boxes, scores = torch.cat([corners, corners + 2 + torch.rand(300, 2).to("cuda") * 20], 1), torch.rand(300).to("cuda")
    image = seeded(torch, 1, 18, 64, 64).requires_grad_()
    rooms = torch.cat([torch.zeros(20, 1, device="cuda"), boxes[:20]], 1)
    weight, offset, mask = seeded(torch, 8, 18, 3, 3), seeded(torch, 1, 18, 64, 64), torch.rand(1, 9, 64, 64).to("cuda")
    results = [ops.roi_align(image, rooms, (6, 6), sampling_ratio=2), ops.roi_pool(image, rooms, (4, 4)), ops.ps_roi_align(image, rooms, (3, 3)), ops.deform_conv2d(image, offset, weight, padding=1, mask=mask)]
    sum(result.square().mean() for result in results).backward()
    return [ops.nms(boxes, scores, 0.4), ops.batched_nms(boxes, scores, torch.arange(300, device="cuda") % 3, 0.4), ops.generalized_box_iou(boxes[:50], boxes[50:100]), image.grad, *results]


@case
def torchvision_segmentation():
    torch = torch_ready()
    from torchvision.models import segmentation
    x = seeded(torch, 2, 3, 128, 160)
    models = [make(weights=None, weights_backbone=None, num_classes=6).cuda().eval() for make in (segmentation.lraspp_mobilenet_v3_large, segmentation.deeplabv3_mobilenet_v3_large)]
    with torch.no_grad():
        return [model(x)["out"] for model in models] + [models[1].half()(x.half())["out"]]


@case
def torchvision_transforms():
    torch = torch_ready()
    from torchvision.transforms import v2
    image = torch.randint(0, 256, (2, 3, 120, 160), dtype=torch.uint8).to("cuda")
    chain = v2.Compose([v2.Resize((96, 128), antialias=True), v2.CenterCrop(90), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.2] * 3)])
    F = v2.functional
    return [chain(image), F.gaussian_blur(image, 7, 1.5), F.affine(image, 20.0, [3, 5], 1.1, [4.0, 0.0], interpolation=v2.InterpolationMode.BILINEAR),
            F.adjust_hue(image, 0.2), F.equalize(image), F.rgb_to_grayscale(image),
            F.perspective(image, None, None, coefficients=[1.0, 0.1, 2.0, 0.05, 0.9, 1.0, 0.0005, 0.0002], interpolation=v2.InterpolationMode.BILINEAR),
            v2.MixUp(num_classes=4)(image.float(), torch.tensor([1, 2], device="cuda"))[0]]


@case
def torchvision_jpegs():
    torch = torch_ready()
    from torchvision import io
    row, column = torch.arange(96).view(1, 96, 1), torch.arange(128).view(1, 1, 128)
    image = torch.cat([row + column, 2 * row + 0 * column, column + 0 * row]).clamp(0, 255).to(torch.uint8)
    # Torchvision encodes in a stream that waits for no other one; PyTorch would fill its results first.
    torch.utils.deterministic.fill_uninitialized_memory = False
    on_host = io.encode_jpeg(image, quality=90)
    on_card = []
    for source in (image, image.flip(2)):
        source = source.to("cuda")
        # Its buffer is one for all images.
        torch.cuda.synchronize()
        on_card += io.encode_jpeg([source], quality=90)
        torch.cuda.synchronize()
    return io.decode_jpeg([on_host, on_host], device="cuda") + [io.decode_jpeg(part.cpu()) for part in on_card]


# --- Sound


@case
def torchaudio_spectrograms():
    torch = torch_ready()
    from torchaudio import functional as F
    from torchaudio import transforms as T
    wave = (torch.sin(torch.arange(16000) * torch.linspace(0.01, 0.5, 16000)) + 0.1 * torch.randn(2, 16000)).to("cuda")
    mel, coefficients = T.MelSpectrogram(16000, n_fft=400, n_mels=40).cuda(), T.MFCC(16000, n_mfcc=13, melkwargs={"n_fft": 400, "n_mels": 40}).cuda()
    power = T.Spectrogram(n_fft=400).cuda()(wave)
    return [mel(wave), coefficients(wave), T.AmplitudeToDB().cuda()(power), T.Resample(16000, 11025).cuda()(wave), T.GriffinLim(n_fft=400, n_iter=4, rand_init=False).cuda()(power),
            F.lowpass_biquad(wave, 16000, 1000.0), F.lfilter(wave, torch.tensor([1.0, -0.5], device="cuda"), torch.tensor([1.0, 0.3], device="cuda")), F.fftconvolve(wave, wave[:, :500])]


@case
def torchaudio_alignment():
    torch = torch_ready()
    from torchaudio import functional as F
    chances, targets = seeded(torch, 1, 60, 12).log_softmax(-1), (torch.arange(1, 21) % 11 + 1).view(1, 20).to("cuda", torch.int32)
    return list(F.forced_align(chances, targets, blank=0))


@case
def torchaudio_transducer_loss():
    torch = torch_ready()
    from torchaudio import functional as F
    logits = seeded(torch, 2, 30, 9, 20).requires_grad_()
    targets = torch.randint(1, 20, (2, 8), dtype=torch.int32).to("cuda")
    loss = F.rnnt_loss(logits, targets, torch.tensor([30, 25], dtype=torch.int32, device="cuda"), torch.tensor([8, 6], dtype=torch.int32, device="cuda"), blank=0)
    loss.backward()
    return [loss, logits.grad]


# --- Hugging Face's models


@case
def t5_generate_half():
    torch, t = transformers_ready()
    model = t.T5ForConditionalGeneration(t.T5Config(vocab_size=500, d_model=128, d_kv=32, d_ff=256, num_layers=2, num_heads=4, decoder_start_token_id=0)).half().cuda().eval()
    ids = tokens(torch, 2, 20)
    with torch.no_grad():
        return [model.generate(input_ids=ids, max_new_tokens=12, do_sample=False, no_repeat_ngram_size=1), model(input_ids=ids, decoder_input_ids=ids[:, :8]).logits]


@case
def whisper_generate():
    torch, t = transformers_ready()
    config = t.WhisperConfig(vocab_size=500, d_model=128, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=256,
                             decoder_ffn_dim=256, max_source_positions=100, max_target_positions=64,
                             pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None)
    model = t.WhisperForConditionalGeneration(config).half().cuda().eval()
    sound = seeded(torch, 2, 80, 200, dtype=torch.float16)
    with torch.no_grad():
        return [model.model.encoder(sound).last_hidden_state, model.generate(sound, max_new_tokens=12, do_sample=False)]


@case
def mixtral_bfloat():
    torch, t = transformers_ready()
    config = t.MixtralConfig(vocab_size=500, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, pad_token_id=0)
    model = t.MixtralForCausalLM(config).to(torch.bfloat16).cuda().eval()
    ids = tokens(torch, 2, 24)
    with torch.no_grad():
        result = model(ids, output_router_logits=True)
        return [result.logits, *result.router_logits, model.generate(ids, max_new_tokens=8, do_sample=False)]


@case
def mamba_generate():
    torch, t = transformers_ready()
    model = t.MambaForCausalLM(t.MambaConfig(vocab_size=500, hidden_size=64, state_size=8, num_hidden_layers=2, pad_token_id=0)).cuda().eval()
    ids = tokens(torch, 2, 16)
    with torch.no_grad():
        return [model(ids).logits, model.generate(ids, max_new_tokens=8, do_sample=False)]


@case
def transformers_vit_bfloat():
    torch, t = transformers_ready()
    config = t.ViTConfig(hidden_size=128, num_hidden_layers=3, num_attention_heads=4, intermediate_size=256, image_size=64, patch_size=8, num_labels=7)
    model = t.ViTForImageClassification(config).to(torch.bfloat16).cuda().eval()
    with torch.no_grad():
        return [model(seeded(torch, 4, 3, 64, 64, dtype=torch.bfloat16)).logits, model(seeded(torch, 2, 3, 80, 96, dtype=torch.bfloat16), interpolate_pos_encoding=True).logits]


@case
def bert_training():
    torch, t = transformers_ready()
    config = t.BertConfig(vocab_size=500, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = t.AutoModelForMaskedLM.from_config(config, attn_implementation="sdpa").cuda().train()
    ids = tokens(torch, 4, 32)
    mask = (torch.arange(32) < torch.tensor([[32], [20], [27], [11]])).long().to("cuda")
    return [train(torch, model, lambda: model(input_ids=ids, attention_mask=mask, labels=ids).loss), model.cls.predictions.transform.dense.weight]


def tiny_llama(t, layers=2):
    return t.LlamaConfig(vocab_size=500, hidden_size=128, intermediate_size=256, num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2, pad_token_id=0)


@case
def llama_static_cache():
    """On a card generate() compiles the decoding step and replays it as a graph."""
    torch, t = transformers_ready()
    model = t.LlamaForCausalLM(tiny_llama(t, layers=1)).cuda().eval()
    with torch.no_grad():
        return [model.generate(tokens(torch, 2, 16), max_new_tokens=16, do_sample=False, cache_implementation="static", eos_token_id=None)]


@case
def qwen_continuous_batching():
    torch, t = transformers_ready()
    config = t.Qwen2Config(vocab_size=500, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, pad_token_id=0)
    # Single precision, since what shares a batch is a matter of time.
    model = t.AutoModelForCausalLM.from_config(config, attn_implementation="paged|sdpa").cuda().eval()
    prompts = [torch.randint(3, 500, (length,)).tolist() for length in (5, 17, 9, 30, 12)]
    how = t.GenerationConfig(max_new_tokens=10, do_sample=False, eos_token_id=-1, pad_token_id=0)
    found = model.generate_batch(prompts, generation_config=how, continuous_batching_config=t.ContinuousBatchingConfig(block_size=32, num_blocks=64, max_batch_tokens=128, seed=1))
    assert len(found) == len(prompts)
    return [torch.tensor(found[key].generated_tokens) for key in sorted(found, key=lambda key: int(key.rsplit("_", 1)[-1]))]


@case
def clip_contrast():
    torch, t = transformers_ready()
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = t.CLIPConfig(text_config={**sizes, "vocab_size": 500, "max_position_embeddings": 32, "eos_token_id": 2, "pad_token_id": 0, "bos_token_id": 1},
                          vision_config={**sizes, "image_size": 64, "patch_size": 8}, projection_dim=32)
    model = t.CLIPModel(config).cuda()
    ids, images = tokens(torch, 4, 16), seeded(torch, 4, 3, 64, 64)
    losses = train(torch, model, lambda: model(input_ids=ids, pixel_values=images, return_loss=True).loss)
    with torch.no_grad():
        return [losses, model.eval().half()(input_ids=ids, pixel_values=images.half()).logits_per_image]


@case
def gpt2_beams():
    torch, t = transformers_ready()
    model = t.GPT2LMHeadModel(t.GPT2Config(n_layer=2, n_embd=128, n_head=4, vocab_size=500, eos_token_id=2, bos_token_id=1, pad_token_id=0)).cuda().eval()
    found = model.generate(tokens(torch, 2, 12), max_new_tokens=12, num_beams=4, num_return_sequences=2, no_repeat_ngram_size=2, do_sample=False, output_scores=True, return_dict_in_generate=True)
    return [found.sequences, found.sequences_scores]


@case
def peft_lora_training():
    torch, t = transformers_ready()
    from peft import LoraConfig, get_peft_model
    model = get_peft_model(t.LlamaForCausalLM(tiny_llama(t)), LoraConfig(r=8, lora_alpha=16, lora_dropout=0.0, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM")).cuda()
    ids = tokens(torch, 2, 24)
    losses = train(torch, model, lambda: model(input_ids=ids, labels=ids).loss, steps=4, rate=0.1)
    with torch.no_grad():
        return [losses, model.merge_and_unload()(ids).logits]


@case
def accelerate_half_training():
    torch = torch_ready()
    from accelerate import Accelerator
    accelerator = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=2)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128), torch.nn.Linear(128, 10))
    data = torch.utils.data.TensorDataset(torch.randn(64, 64), torch.arange(64) % 10)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3), torch.utils.data.DataLoader(data, batch_size=16))
    losses = []
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()).float().mean())
    return [torch.stack(losses)]


@case
def lightning_training():
    torch = torch_ready()
    import pytorch_lightning
    from pytorch_lightning.plugins.environments import LightningEnvironment

    class Model(pytorch_lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 10))
            self.losses = []

        def training_step(self, batch, _):
            loss = torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])
            self.losses.append(loss.detach().float())
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    model, data = Model(), torch.utils.data.TensorDataset(torch.randn(64, 64), torch.arange(64) % 10)
    # An environment named here keeps it from looking for MPI.
    trainer = pytorch_lightning.Trainer(accelerator="gpu", devices=1, max_epochs=1, precision="bf16-mixed", logger=False, gradient_clip_val=1.0,
                                        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, plugins=[LightningEnvironment()])
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=16))
    return [torch.stack(model.losses)]


@case
def sentence_embeddings():
    torch, t = transformers_ready()
    import sentence_transformers
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "card", "is", "shared", "by", "many", "programs", "each", "has", "its", "own", "memory", "."]
    with tempfile.TemporaryDirectory() as folder:
        t.BertModel(t.BertConfig(vocab_size=len(words), hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, max_position_embeddings=64)).save_pretrained(folder)
        t.BertTokenizer(vocab={word: n for n, word in enumerate(words)}).save_pretrained(folder)
        model = sentence_transformers.SentenceTransformer(folder, device="cuda")
    texts = ["The card is shared by many programs.", "Each has its own memory.", "Many programs."]
    made = model.encode(texts, convert_to_tensor=True, show_progress_bar=False)
    return [made, model.half().encode(texts, convert_to_tensor=True, show_progress_bar=False), sentence_transformers.util.cos_sim(made, made),
            torch.tensor([hit["score"] for hits in sentence_transformers.util.semantic_search(made, made, top_k=2) for hit in hits])]


# --- Graphs, measures, processes, equations


@case
def graph_networks_training():
    torch = torch_ready()
    from torch_geometric import nn, utils
    edges = utils.to_undirected(torch.randint(0, 200, (2, 800)).to("cuda"))
    x, y, results = seeded(torch, 200, 32), torch.arange(200, device="cuda") % 5, []
    for first, second in ((nn.GCNConv(32, 64), nn.GCNConv(64, 5)), (nn.GATConv(32, 16, heads=4), nn.GATConv(64, 5)), (nn.SAGEConv(32, 64), nn.SAGEConv(64, 5, aggr="max"))):
        model = nn.Sequential("x, edges", [(first, "x, edges -> x"), torch.nn.ReLU(), (second, "x, edges -> x")]).cuda()
        results.append(train(torch, model, lambda model=model: torch.nn.functional.cross_entropy(model(x, edges), y), steps=4, rate=0.05))
        results.append(nn.global_mean_pool(model(x, edges), torch.arange(200, device="cuda") // 50))
    return results


@case
def torchmetrics_on_card():
    torch = torch_ready()
    import torchmetrics
    from torchmetrics import classification, image
    guesses, truth, x, y = seeded(torch, 200, 5).softmax(-1), torch.randint(0, 5, (200,)).to("cuda"), torch.rand(2, 3, 48, 48).to("cuda"), torch.rand(2, 3, 48, 48).to("cuda")
    many = torchmetrics.MetricCollection([classification.MulticlassAccuracy(5), classification.MulticlassF1Score(5), classification.MulticlassAUROC(5), classification.MulticlassCalibrationError(5)]).to("cuda")
    for part in range(0, 200, 50):
        many.update(guesses[part:part + 50], truth[part:part + 50])
    rest = [(classification.MulticlassConfusionMatrix(5), guesses, truth), (torchmetrics.PearsonCorrCoef(), guesses[:, 0], guesses[:, 1]), (torchmetrics.R2Score(), guesses[:, 0], guesses[:, 1]),
            (torchmetrics.SpearmanCorrCoef(), guesses[:, 0], guesses[:, 1]), (image.StructuralSimilarityIndexMeasure(data_range=1.0), x, y), (image.PeakSignalNoiseRatio(data_range=1.0), x, y)]
    return [*many.compute().values(), *(metric.to("cuda")(a, b) for metric, a, b in rest)]


@case
def gpytorch_fit():
    torch = torch_ready()
    import gpytorch

    class Process(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean, self.kernel = gpytorch.means.ConstantMean(), gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=2.5))

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    x = torch.linspace(0, 1, 100).to("cuda")
    y = torch.sin(6 * x) + 0.1 * seeded(torch, 100)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().cuda()
    model = Process(x, y, likelihood).cuda()
    optimizer, goal, losses = torch.optim.Adam(model.parameters(), lr=0.1), gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model), []
    for _ in range(5):
        optimizer.zero_grad()
        loss = -goal(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        guess = likelihood(model(torch.linspace(0, 1.2, 40).to("cuda")))
        return [torch.stack(losses), guess.mean, guess.variance]


@case
def botorch_step():
    torch = torch_ready()
    from botorch.acquisition import qExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    from botorch.sampling import SobolQMCNormalSampler
    from gpytorch.mlls import ExactMarginalLogLikelihood
    x = torch.rand(12, 2, dtype=torch.float64).to("cuda")
    y = -((x - 0.4) ** 2).sum(1, keepdim=True) + 0.3 * torch.sin(8 * x[:, :1])
    model = SingleTaskGP(x, y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model), optimizer_kwargs={"options": {"maxiter": 20}})
    gain = qExpectedImprovement(model, best_f=y.max(), sampler=SobolQMCNormalSampler(torch.Size([64]), seed=3))
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64, device="cuda")
    point, value = optimize_acqf(gain, bounds=bounds, q=2, num_restarts=3, raw_samples=16, options={"maxiter": 10, "seed": 4})
    return [point, value, model.posterior(x).mean]


@case
def torchdiffeq_adjoint():
    torch = torch_ready()
    from torchdiffeq import odeint, odeint_adjoint

    class Field(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 8))

        def forward(self, _, y):
            return self.layers(y) - 0.5 * y

    field, start, times = Field().double().cuda(), seeded(torch, 16, 8, dtype=torch.float64), torch.linspace(0, 2, 6, dtype=torch.float64).to("cuda")
    path = odeint_adjoint(field, start, times, rtol=1e-5, atol=1e-6)
    path.square().mean().backward()
    with torch.no_grad():
        return [path, field.layers[0].weight.grad, odeint(field, start, times, method="rk4"), odeint(field, start, times, method="dopri8")]


@case
def e3nn_tensor_products():
    torch = torch_ready()
    from e3nn import nn, o3
    places = seeded(torch, 60, 3)
    sphere = o3.spherical_harmonics("0e+1o+2e", places, normalize=True, normalization="component")
    product = o3.FullyConnectedTensorProduct("8x0e+4x1o", "0e+1o+2e", "12x0e+8x1o", shared_weights=False).cuda()
    weights = nn.FullyConnectedNet([1, 16, product.weight_numel], torch.nn.functional.silu).cuda()
    gate = nn.Gate("4x0e", [torch.nn.functional.silu], "8x0e", [torch.sigmoid], "8x1o").cuda()
    features = o3.Irreps("8x0e+4x1o").randn(60, -1).to("cuda").requires_grad_()
    for _ in range(3):  # TorchScript fuses after it has seen two passes
        result = gate(product(features, sphere, weights(places.norm(dim=1, keepdim=True))))
    result.square().mean().backward()
    return [sphere, result, features.grad, o3.Linear("4x0e+8x1o", "2x0e+2x1o").cuda()(result)]


@case
def einops_dynamic_shapes():
    torch = torch_ready()
    from einops import rearrange, reduce
    from einops.layers.torch import Rearrange
    inward, outward = torch.nn.Linear(64, 192).cuda(), torch.nn.Sequential(Rearrange("b h n d -> b n (h d)"), torch.nn.Linear(64, 64)).cuda()

    @torch.compile(dynamic=True)
    def block(x):
        q, k, v = rearrange(inward(x), "b n (three h d) -> three b h n d", three=3, h=4)
        weights = (torch.einsum("bhid,bhjd->bhij", q, k) / 4).softmax(-1)
        return reduce(x + outward(weights @ v), "b n c -> b c", "mean")

    with torch.no_grad():
        return [block(seeded(torch, 2, length, 64)) for length in (16, 33, 70)]


# --- JAX's packages


@case
def flax_transformer_training():
    jax, np, x = precise_jax()
    import optax
    from flax import nnx

    class Block(nnx.Module):
        def __init__(self, rngs):
            self.attention = nnx.MultiHeadAttention(4, 64, decode=False, rngs=rngs)
            self.norms = nnx.List([nnx.LayerNorm(64, rngs=rngs) for _ in range(2)])
            self.up, self.down = nnx.Linear(64, 128, rngs=rngs), nnx.Linear(128, 64, rngs=rngs)

        def __call__(self, x):
            x = x + self.attention(self.norms[0](x))
            return x + self.down(nnx.gelu(self.up(self.norms[1](x))))

    model = Block(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer, x, y):
        loss, grads = nnx.value_and_grad(lambda model: ((model(x) - y) ** 2).mean())(model)
        optimizer.update(model, grads)
        return loss

    x = np.asarray(x).reshape(4, 16, 64)
    return [np.stack([step(model, optimizer, x, np.roll(x, 1, 1)) for _ in range(4)]), model(x)]


@case
def flax_convolution_training():
    jax, np, x = precise_jax()
    import optax
    from flax import linen

    class Net(linen.Module):
        @linen.compact
        def __call__(self, x):
            x = linen.relu(linen.BatchNorm(use_running_average=False)(linen.Conv(16, (3, 3), use_bias=False)(x)))
            return linen.Dense(10)(linen.avg_pool(x, (2, 2), (2, 2)).reshape(x.shape[0], -1))

    model, images, labels = Net(), np.asarray(x).reshape(4, 32, 32, 1), np.arange(4)
    kept = model.init(jax.random.PRNGKey(0), images)
    tool = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(optax.cosine_decay_schedule(0.05, 10), momentum=0.9))
    parameters, state = kept["params"], tool.init(kept["params"])

    @jax.jit
    def step(parameters, state):
        def loss(parameters):
            made, _ = model.apply({"params": parameters, "batch_stats": kept["batch_stats"]}, images, mutable=["batch_stats"])
            return optax.softmax_cross_entropy_with_integer_labels(made, labels).mean()
        value, grads = jax.value_and_grad(loss)(parameters)
        changes, state = tool.update(grads, state)
        return optax.apply_updates(parameters, changes), state, value

    losses = []
    for _ in range(4):
        parameters, state, value = step(parameters, state)
        losses.append(value)
    return [np.stack(losses), *jax.tree.leaves(parameters)]


@case
def numpyro_nuts():
    jax, np, x = precise_jax()
    import numpyro
    from numpyro import distributions
    from numpyro.infer import MCMC, NUTS
    x = np.asarray(x[:, :3])
    y = 2 * x[:, 0] - x[:, 1] + 0.1 * np.sin(np.arange(64.0))

    def model():
        slopes = numpyro.sample("slopes", distributions.Normal(0, 2).expand([3]).to_event(1))
        spread = numpyro.sample("spread", distributions.HalfNormal(1.0))
        numpyro.sample("y", distributions.Normal((x * slopes).sum(-1), spread + 0.1), obs=y)

    chain = MCMC(NUTS(model, max_tree_depth=5), num_warmup=20, num_samples=10, progress_bar=False)
    chain.run(jax.random.PRNGKey(2))
    return [part.mean(0) for part in chain.get_samples().values()]


@case
def diffrax_gradient():
    jax, np, x = precise_jax()
    import diffrax

    def path(matrix):
        term, steps = diffrax.ODETerm(lambda t, y, _: np.tanh(matrix @ y) - y + np.sin(t)), diffrax.PIDController(rtol=1e-4, atol=1e-5)
        return diffrax.diffeqsolve(term, diffrax.Tsit5(), 0.0, 3.0, 0.1, np.ones(16), saveat=diffrax.SaveAt(ts=np.linspace(0, 3, 7)), stepsize_controller=steps).ys

    matrix = np.asarray(x[:16, :16]) - 0.5
    return [jax.jit(path)(matrix), jax.jit(jax.grad(lambda m: (path(m) ** 2).mean()))(matrix)]


@case
def optimistix_least_squares():
    jax, np, x = precise_jax()
    import optimistix
    times = np.linspace(0, 2, 64)
    data = 2.0 * np.exp(-1.5 * times) + 0.3 + 0.01 * np.asarray(x[0])
    fit = optimistix.least_squares(lambda p, _: p[0] * np.exp(-p[1] * times) + p[2] - data, optimistix.LevenbergMarquardt(rtol=1e-4, atol=1e-4), np.array([1.0, 1.0, 0.0])).value
    root = optimistix.root_find(lambda y, _: y - 0.5 * np.cos(y[::-1]), optimistix.Newton(rtol=1e-5, atol=1e-5), np.zeros(8)).value
    low = optimistix.minimise(lambda y, _: ((y - np.arange(4.0)) ** 2).sum() + 0.1 * (y ** 4).sum(), optimistix.BFGS(rtol=1e-4, atol=1e-4), np.ones(4)).value
    return [fit, root, low]


@case
def lineax_solvers():
    jax, np, x = precise_jax()
    import lineax
    matrix, right = np.asarray(x) + 32 * np.eye(64), np.asarray(x[0])
    definite = lineax.MatrixLinearOperator(matrix @ matrix.T, lineax.positive_semidefinite_tag)
    tall = lineax.MatrixLinearOperator(matrix[:, :40])
    free = lineax.FunctionLinearOperator(lambda v: 4 * v + np.roll(v, 1), jax.eval_shape(lambda: right))
    found = [lineax.linear_solve(lineax.MatrixLinearOperator(matrix), right, lineax.LU()), lineax.linear_solve(definite, right, lineax.Cholesky()),
             lineax.linear_solve(definite, right, lineax.CG(rtol=1e-5, atol=1e-5)),
             lineax.linear_solve(tall, right, lineax.QR()), lineax.linear_solve(tall, right, lineax.SVD()), lineax.linear_solve(free, right, lineax.GMRES(rtol=1e-5, atol=1e-5))]
    return [part.value for part in found]
