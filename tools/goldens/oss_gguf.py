"""gpt-oss: its experts in GGUF, and in mxfp4."""

import gguf
import torch


def oss_experts(layer, name, tensor):
    """GGUF has gates and ups apart, and matrices the other way round."""
    part, is_bias = name.removesuffix("_bias"), name.endswith("_bias")
    if not is_bias:
        tensor = tensor.transpose(1, 2)
    suffix = "bias" if is_bias else "weight"
    if part == "down_proj":
        yield f"blk.{layer}.ffn_down_exps.{suffix}", tensor
        return
    for number, own in enumerate(("gate", "up")):
        yield f"blk.{layer}.ffn_{own}_exps.{suffix}", tensor[:, number::2].contiguous()


def is_oss_matrix(name):
    return name.endswith(("gate_up_proj", "down_proj"))


def quantize_oss_experts(model):
    """Puts in the place of experts' matrices what their mxfp4 form stands for; returns folders' form."""
    kind, tensors = gguf.GGMLQuantizationType.MXFP4, {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not is_oss_matrix(name):
                continue
            blocks = gguf.quants.quantize(parameter.transpose(1, 2).contiguous().numpy(), kind)
            whole = torch.from_numpy(gguf.quants.dequantize(blocks, kind))
            parameter.copy_(whole.transpose(1, 2))
            blocks = torch.from_numpy(blocks.copy()).unflatten(-1, (-1, 17))
            low, high = blocks[..., 1:] & 15, blocks[..., 1:] >> 4
            codes = torch.cat([low, high], -1)
            tensors[name + "_blocks"] = codes[..., ::2] | codes[..., 1::2] << 4
            tensors[name + "_scales"] = blocks[..., 0].contiguous()
    return tensors
