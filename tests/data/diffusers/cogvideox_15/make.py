"""Makes this case with diffusers 0.42.1: the form of CogVideoX1.5, whose patches span two frames."""

import json
import pathlib

import torch
from diffusers import CogVideoXTransformer3DModel
from diffusers.models.embeddings import get_3d_rotary_pos_embed
from safetensors.torch import save_file

here = pathlib.Path(__file__).parent
torch.manual_seed(15)
config = dict(num_attention_heads=1, attention_head_dim=16, in_channels=4, out_channels=4, num_layers=2,
              time_embed_dim=8, text_embed_dim=12, max_text_seq_length=6, sample_width=6, sample_height=4,
              sample_frames=9, patch_size=2, patch_size_t=2, patch_bias=False,
              use_rotary_positional_embeddings=True, ofs_embed_dim=None)
model = CogVideoXTransformer3DModel(**config).eval()
for parameter in model.parameters():
    parameter.data = (parameter.data + 0.2 * torch.randn_like(parameter)).half().float()
assert model.patch_embed.proj.bias is not None
folder = here / "model/transformer"
folder.mkdir(parents=True, exist_ok=True)
save_file({name: value.half() for name, value in model.state_dict().items()},
          folder / "diffusion_pytorch_model.safetensors")
(folder / "config.json").write_text(json.dumps(
    {"_class_name": "CogVideoXTransformer3DModel", **config}, indent=1, sort_keys=True) + "\n")

tensors = {}
for name, rows, (frames, height, width), times in (("fwd0", 1, (4, 4, 6), [700]), ("fwd1", 1, (4, 4, 6), [20]),
                                                   ("fwd2", 2, (2, 6, 4), [999, 300])):
    shape = (rows, frames, 4, height, width)
    latent = torch.randn(shape) if name != "fwd1" else tensors["fwd0.in.hidden_states"]
    text = torch.randn(rows, 5, 12) if name != "fwd1" else tensors["fwd0.in.encoder_hidden_states"]
    turns = get_3d_rotary_pos_embed(16, None, (height // 2, width // 2), frames // 2, grid_type="slice",
                                    max_size=(height // 2, width // 2))
    hooks = []
    for index, block in enumerate(model.transformer_blocks):
        def keep(_, __, out, index=index, name=name):
            tensors[f"{name}.block.{index}"] = out[0].clone()
            tensors[f"{name}.block.{index}.context"] = out[1].clone()
        if name == "fwd0":
            hooks.append(block.register_forward_hook(keep))
    inputs = {"hidden_states": latent, "encoder_hidden_states": text, "timestep": torch.tensor(times)}
    with torch.no_grad():
        tensors[name + ".out"] = model(**inputs, image_rotary_emb=turns, return_dict=False)[0]
    for hook in hooks:
        hook.remove()
    kept = {"timestep"} if name == "fwd1" else set(inputs)
    tensors |= {f"{name}.in.{key}": value.clone() if value.is_floating_point() else value.int()
                for key, value in inputs.items() if key in kept}
save_file({name: value.contiguous() for name, value in tensors.items()}, here / "io_transformer.safetensors")
