"""Families of the `transformers` package on the virtual card against the device behind it: forward, backward and three AdamW steps.

    python run_program.py models.py [names]        # needs the package transformers; prints one line for each family

Configurations are small and weights random, the same on both sides. Dropout is on where a family has it: the virtual card draws the
same numbers as the device behind it.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import warnings

warnings.simplefilter("ignore")
os.environ.update(TRANSFORMERS_VERBOSITY="error", HF_HUB_OFFLINE="1")
import serving
import torch
import transformers

DEVICE, STEPS = "tessera", 3
SMALL = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
GROUPED = dict(SMALL, num_key_value_heads=2, vocab_size=100)
PAIR = dict(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
            encoder_ffn_dim=64, decoder_ffn_dim=64)  # fmt: skip
IMAGE = dict(SMALL, image_size=32, patch_size=8)


def text(tokens):
    return dict(input_ids=tokens, labels=tokens)


def image(_):
    return dict(pixel_values=torch.randn(2, 3, 32, 32), labels=torch.tensor([1, 3]))


def causal(name, **settings):
    return lambda: getattr(transformers, f"{name}ForCausalLM")(getattr(transformers, f"{name}Config")(**settings))


def of(model, config, **settings):
    return lambda: getattr(transformers, model)(getattr(transformers, config)(**settings))


FAMILIES = {
    "gpt2": (of("GPT2LMHeadModel", "GPT2Config", n_layer=2, n_head=4, n_embd=32, n_positions=64, vocab_size=100), text),
    "llama": (causal("Llama", **GROUPED), text),
    "mistral": (causal("Mistral", sliding_window=8, **GROUPED), text),
    "qwen2": (causal("Qwen2", **GROUPED), text),
    "mixtral": (causal("Mixtral", num_local_experts=4, **GROUPED), text),
    "opt": (causal("OPT", hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=4, word_embed_proj_dim=32,
                   vocab_size=100), text),
    "mamba": (causal("Mamba", hidden_size=32, state_size=8, num_hidden_layers=2, vocab_size=100), text),
    "bert": (of("BertForMaskedLM", "BertConfig", vocab_size=100, **SMALL), text),
    "roberta": (of("RobertaForMaskedLM", "RobertaConfig", vocab_size=100, max_position_embeddings=40, **SMALL), text),
    "t5": (of("T5ForConditionalGeneration", "T5Config", d_model=32, d_ff=64, d_kv=8, num_layers=2, num_heads=4,
              decoder_start_token_id=0, vocab_size=100), text),
    "bart": (of("BartForConditionalGeneration", "BartConfig", vocab_size=100, **PAIR), text),
    "whisper": (of("WhisperForConditionalGeneration", "WhisperConfig", vocab_size=100, num_mel_bins=16, max_source_positions=20,
                   pad_token_id=1, bos_token_id=2, eos_token_id=3, decoder_start_token_id=2, suppress_tokens=None,
                   begin_suppress_tokens=None, **PAIR),
                lambda tokens: dict(input_features=torch.randn(2, 16, 40), labels=tokens)),
    "wav2vec2": (of("Wav2Vec2ForCTC", "Wav2Vec2Config", vocab_size=20, conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3),
                    num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, layerdrop=0, mask_time_prob=0, **SMALL),
                 lambda _: dict(input_values=torch.randn(2, 400), labels=torch.randint(1, 19, (2, 5)))),
    "vit": (of("ViTForImageClassification", "ViTConfig", num_labels=5, **IMAGE), image),
    "resnet": (of("ResNetForImageClassification", "ResNetConfig", embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1],
                  layer_type="basic", num_labels=5), image),
    "convnext": (of("ConvNextForImageClassification", "ConvNextConfig", hidden_sizes=[8, 16], depths=[1, 1], num_stages=2,
                    num_labels=5), image),
    "clip": (lambda: transformers.CLIPModel(transformers.CLIPConfig(
        text_config=dict(SMALL, vocab_size=100, max_position_embeddings=32), vision_config=IMAGE, projection_dim=16)),
        lambda tokens: dict(input_ids=tokens, pixel_values=torch.randn(2, 3, 32, 32), return_loss=True)),
}  # fmt: skip


def train(model, optimiser, inputs):
    losses = []
    for step in range(STEPS):
        torch.manual_seed(step)
        loss = model(**inputs)["loss"]
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item())
    return losses


def trained(name, device):
    """Losses of the steps, and parameters after them."""
    make, inputs = FAMILIES[name]
    torch.manual_seed(0)
    model, inputs = make().train(), inputs(torch.randint(5, 90, (2, 17)))
    model = model.to(device)
    inputs = {key: value.to(device) if isinstance(value, torch.Tensor) else value for key, value in inputs.items()}
    # A large epsilon: where a gradient is nothing but rounding, Adam would step by its sign.
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-4)
    # What is dropped out of attention is drawn by its parts on the card, and by a kernel's own rule on a GPU.
    composed = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with contextlib.nullcontext() if serving.DEVICE == "cpu" else composed:
        losses = train(model, optimiser, inputs)
    return losses, [parameter.detach().cpu() for parameter in model.parameters()]


def expected(name):
    """The same on the device behind the card. PyTorch has one kind of accelerator in a process, so another one has a process of its own."""
    if serving.DEVICE == "cpu":
        return trained(name, "cpu")
    with tempfile.NamedTemporaryFile() as file:
        environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "TESSERA_SLICES": ""}
        subprocess.run([sys.executable, __file__, "--expected", file.name, name], env=environment, check=True)
        return torch.load(file.name)


def difference(name):
    """Largest difference of losses, and of parameters, after the steps."""
    (losses, here), (on_card, there) = expected(name), trained(name, DEVICE)
    apart = max(abs(one - other) for one, other in zip(losses, on_card, strict=True))
    return apart, max((one - other).abs().max().item() for one, other in zip(here, there, strict=True))


def main():
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--expected"]:
        return torch.save(trained(sys.argv[3], serving.DEVICE), sys.argv[2])
    wrong = []
    for name in sys.argv[1:] or FAMILIES:
        try:
            losses, parameters = difference(name)
            equal = losses < 1e-4 and parameters < 1e-4
            print(f"{'equal    ' if equal else 'DIFFERENT'} {name:10} losses {losses:.1e}, parameters {parameters:.1e}", flush=True)
        except Exception as error:
            equal = False
            print(f"FAILED    {name:10} {type(error).__name__}: {str(error)[:300]}", flush=True)
        wrong += [] if equal else [name]
    print(f"{len(sys.argv[1:] or FAMILIES) - len(wrong)} of {len(sys.argv[1:] or FAMILIES)} equal; torch {torch.__version__}, "
          f"transformers {transformers.__version__}")  # fmt: skip
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
