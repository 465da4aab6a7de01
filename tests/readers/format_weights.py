"""Dequantizes checkpoints of every safetensors format with only numpy and compares them with the plan's weights, bit for bit.

    format_weights.py OUT...

write_format wrote each OUT: OUT.plan.safetensors has the weights in float32.  The script uses nothing of calm: it has the layouts of the
formats' own readers:
  - compressed-tensors: pack_to_int32 / unpack_from_int32 of the library (docs/formats.md section 3)
  - GPTQ: gptqmodel/nn_modules/qlinear (qweight along in, qzeros along out, v1 stores zero - 1)
  - AWQ: AutoAWQ, awq/utils/packing_utils.py: unpack_awq, reverse_awq_order, dequantize_gemm
  - MLX: mx.dequantize, code * scale + bias
One line per folder; exit status 1 unless all are the same."""

import json
import os
import re
import struct
import sys

import numpy

DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I8": "i1", "U32": "<u4", "U8": "u1", "F8_E4M3": "u1"}


def read_file(path, out):
    with open(path, "rb") as stream:
        length = struct.unpack("<Q", stream.read(8))[0]
        header = json.loads(stream.read(length))
        data = stream.read()
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        array = numpy.frombuffer(data[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
        if entry["dtype"] == "BF16":
            array = (array.astype(numpy.uint32) << 16).view(numpy.float32)
        out[name] = array
    return out


def read_folder(folder):
    index = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index):
        return read_file(os.path.join(folder, "model.safetensors"), {})
    with open(index, encoding="utf-8") as stream:
        index = json.load(stream)
    tensors = {}
    for name in sorted(set(index["weight_map"].values())):
        read_file(os.path.join(folder, name), tensors)
    assert set(tensors) == set(index["weight_map"]), "the index names other tensors"
    assert sum(t.nbytes for t in tensors.values()) >= index["metadata"]["total_size"], "total_size"
    return tensors


def stream(words, n, bits):
    """Returns n codes of each row of a dense little-endian stream of words."""
    taken = numpy.unpackbits(numpy.ascontiguousarray(words).view(numpy.uint8), axis=1, bitorder="little")[:, : n * bits]
    weights = (1 << numpy.arange(bits)).astype(numpy.int64)
    return (taken.reshape(len(words), n, bits).astype(numpy.int64) * weights).sum(-1)


def spread(values, width, columns):
    """Expands a number per group to one per column."""
    return numpy.repeat(values, width, axis=1)[:, :columns]


def f32(array):
    return array.astype(numpy.float32)


def small_float(bits, exponents, mantissas):
    """Returns the values of bit patterns with a sign, these numbers of exponent and mantissa bits."""
    exponent = bits >> mantissas & ((1 << exponents) - 1)
    fraction = (bits & ((1 << mantissas) - 1)) / 2.0**mantissas + (exponent > 0)
    value = fraction * 2.0 ** (numpy.maximum(exponent, 1) - (2 ** (exponents - 1) - 1.0))
    return numpy.where(bits >> (exponents + mantissas), -value, value)


def floats(group, tensors, module):
    """Dequantizes FP8 by channel or in blocks; MXFP4, whose scales are powers of two; NVFP4, with e4m3 scales and a float32 factor."""
    if group["format"] == "float-quantized":
        values, scales = f32(small_float(tensors[module + ".weight"].astype(int), 4, 3)), f32(tensors[module + ".weight_scale"])
        if group["weights"]["strategy"] == "block":
            rows, columns = group["weights"]["block_structure"]
            scales = numpy.repeat(spread(scales, columns, values.shape[1]), rows, axis=0)[: len(values)]
        return values * scales
    packed, scale = tensors[module + ".weight_packed"].astype(int), tensors[module + ".weight_scale"].astype(int)
    codes = numpy.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1)
    if group["format"] == "mxfp4-pack-quantized":
        scales = f32(2.0 ** (scale - 127.0))
    else:
        scales = f32(small_float(scale, 4, 3)) / tensors[module + ".weight_global_scale"]
        assert (module + ".input_global_scale" in tensors) == (group["input_activations"] is not None)
    return f32(small_float(codes, 2, 1)) * spread(scales, group["weights"]["group_size"], codes.shape[1])


def compressed_tensors(config, tensors, module, shape):
    entry = config["quantization_config"]
    hits = [
        group
        for group in entry["config_groups"].values()
        if any(re.match(target[3:], module) for target in group["targets"])
    ]
    assert len(hits) + (module in entry["ignore"]) == 1, f"{module}: {len(hits)} groups"
    if not hits:
        return None
    args, out, columns = hits[0]["weights"], shape[0], shape[1]
    if args["type"] == "float":
        return floats(hits[0], tensors, module)
    bits, width = args["num_bits"], args["group_size"] or columns
    scales = spread(f32(tensors[module + ".weight_scale"]), width, columns)
    zeros = numpy.full(scales.shape, 1 << (bits - 1))
    if hits[0]["format"] == "int-quantized":
        return f32(tensors[module + ".weight"]) * scales
    assert list(tensors[module + ".weight_shape"]) == list(shape)
    codes = stream(tensors[module + ".weight_packed"], columns, bits)
    if not args["symmetric"]:
        packed = numpy.ascontiguousarray(tensors[module + ".weight_zero_point"].T)
        zeros = spread(stream(packed, out, bits).T, width, columns)
    return f32(codes - zeros) * scales


def gptq(config, tensors, module, shape):
    entry = dict(config["quantization_config"])
    for key, values in entry.pop("dynamic", {}).items():
        if re.match(key[2:], module):
            if key.startswith("-:"):
                return None
            entry.update(values)
            break
    bits, columns = entry["bits"], shape[1]
    index = tensors[module + ".g_idx"]
    width = columns if entry["group_size"] < 0 else entry["group_size"]
    assert (index == numpy.arange(columns) // width).all()
    codes = stream(numpy.ascontiguousarray(tensors[module + ".qweight"].T), columns, bits)
    zeros = stream(tensors[module + ".qzeros"], shape[0], bits)
    if entry["checkpoint_format"] == "gptq":
        zeros = (zeros + 1) % (1 << bits)
    assert not entry["sym"] or (zeros == 1 << (bits - 1)).all()
    assert tensors[module + ".scales"].dtype == numpy.float16
    return f32(codes - zeros[index].T) * f32(tensors[module + ".scales"])[index].T


def awq(config, tensors, module, shape):
    entry = config["quantization_config"]
    if any(name in module for name in entry["modules_to_not_convert"]):
        return None
    width = shape[1] if entry["group_size"] < 0 else entry["group_size"]

    def unpack(words):
        nibbles = (words.astype(numpy.uint32)[:, :, None] >> numpy.arange(0, 32, 4, dtype=numpy.uint32)) & 15
        flat = nibbles.reshape(len(words), -1)
        order = numpy.arange(flat.shape[1]).reshape(-1, 8)[:, [0, 4, 1, 5, 2, 6, 3, 7]].reshape(-1)
        return flat[:, order].astype(numpy.int64)

    codes = unpack(tensors[module + ".qweight"])
    zeros = numpy.repeat(unpack(tensors[module + ".qzeros"]), width, axis=0)
    scales = numpy.repeat(tensors[module + ".scales"], width, axis=0)
    assert scales.dtype == numpy.float16
    return (f32(codes - zeros) * f32(scales)).T


def mlx(config, tensors, module, shape):
    entry = config["quantization"]
    assert entry == config["quantization_config"]
    # mlx_lm.models.qwen3_moe: SwitchGLU, tensors of all experts
    expert = re.fullmatch(r"(.*)\.experts\.(\d+)(\..*)", module)
    stack = expert[1] + ".switch_mlp" + expert[3] if expert else module
    part = (lambda array: array[int(expert[2])]) if expert else lambda array: array
    own = entry.get(stack, entry)
    if own is False or stack + ".scales" not in tensors:
        assert module + ".scales" not in tensors and module + ".weight" in tensors
        return None
    width = own["group_size"]
    codes = f32(stream(part(tensors[stack + ".weight"]), shape[1], own["bits"]))
    scales, biases = (spread(f32(part(tensors[stack + end])), width, shape[1]) for end in (".scales", ".biases"))
    return codes * scales + biases


def check(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as stream_:
        config = json.load(stream_)
    method = config["quantization_config"].get("quant_method", "mlx")
    read = {"compressed-tensors": compressed_tensors, "gptq": gptq, "awq": awq, "mlx": mlx}[method]
    tensors, plan = read_folder(folder), read_file(folder + ".plan.safetensors", {})
    quantized = 0
    for name, expected in plan.items():
        module = name.removesuffix(".weight")
        found = read(config, tensors, module, expected.shape)
        quantized += found is not None
        found = f32(tensors[name]) if found is None else found
        # Equal bits except for the sign of zero, which MLX's sum loses: a code at its zero point under a negative scale.
        if found.dtype != numpy.float32 or found.shape != expected.shape or not (found == expected).all():
            return f"DIFFERENT at {module}"
    assert quantized, "nothing is quantized"
    return f"same ({method}; {quantized} of {len(plan)} linears quantized)"


def main():
    failed = 0
    for folder in sys.argv[1:]:
        try:
            verdict = check(folder)
        except Exception as problem:
            verdict = f"NOT READ: {type(problem).__name__}: {problem}"
        failed += not verdict.startswith("same")
        print(f"{os.path.basename(folder)}: {verdict}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
