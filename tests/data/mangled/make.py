#!/usr/bin/env python3
"""Write the broken files of this folder: make.py, run in it.  The files are committed; tests do not need Python.

A file is named STATUS_text__variant.kind: opening it must fail with that status and a message that contains the text,
with '_' for spaces.  The kind says who reads it (tests/unit/test_mangled.c)."""
import json
import os
import struct


def put(name, data):
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    with open(name, "wb") as stream:
        stream.write(data)


def header(table):
    return json.dumps(table, separators=(",", ":")).encode()


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def packed(text, data=b"", length=None):
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensors(name, table, data=b""):
    put(name + ".safetensors", packed(header(table), data))


def safetensors():
    two = {"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 8, 16)}
    body = header(two)
    put("EFORMAT_too_short_for_a_safetensors_file__empty.safetensors", b"")
    put("EFORMAT_too_short_for_a_safetensors_file__7_bytes.safetensors", b"\0" * 7)
    past = "EFORMAT_reaches_past_the_end_of_the_file__"
    put(past + "by_one.safetensors", packed(body, b"", len(body) + 1))
    put(past + "by_2_to_the_64.safetensors", packed(body, bytes(16), 2 ** 64 - 1))
    put(past + "over_the_limit.safetensors", packed(body, bytes(16), 100000001))
    begin = "EFORMAT_the_header_does_not_begin_with__"
    put(begin + "length_0.safetensors", packed(b"", bytes(16)))
    put(begin + "space.safetensors", packed(b" " + body, bytes(16)))
    put(begin + "array.safetensors", packed(b"[1]"))
    put("EFORMAT_not_valid_JSON__header_cut.safetensors", packed(body[:-1], bytes(16)))
    put("EFORMAT_duplicate_object_key.safetensors", packed(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
                                                     b'"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', bytes(8)))
    tensors("EFORMAT_tensors_a_and_b_overlap__partly", {"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 4, 12)}, bytes(12))
    tensors("EFORMAT_overlap__same_place", {"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 0, 8)}, bytes(8))
    tensors("EFORMAT_a_gap_of_4_bytes_before_tensor_a__front", {"a": entry("F32", [2], 4, 12)}, bytes(12))
    tensors("EFORMAT_a_gap_of_4_bytes_before_tensor_b__between",
            {"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 12, 20)}, bytes(20))
    tensors("EFORMAT_4_bytes_after_the_last_tensor", two, bytes(20))
    tensors("EFORMAT_8_bytes_after_the_last_tensor__no_tensors", {"__metadata__": {"format": "pt"}}, bytes(8))
    outside = "EFORMAT_reach_past_the_"
    tensors(outside + "15_data_bytes__truncated", two, bytes(15))
    tensors(outside + "0_data_bytes__no_data", two)
    tensors(outside + "8_data_bytes__outside", {"a": entry("F32", [2], 2 ** 62, 2 ** 62 + 8)}, bytes(8))
    tensors("EFORMAT_data_offsets_span_8_bytes,_expected_16_for_F32__shape_too_large", {"a": entry("F32", [4], 0, 8)}, bytes(8))
    tensors("EFORMAT_data_offsets_span_8_bytes,_expected_4_for_BF16__other_dtype", {"a": entry("BF16", [2], 0, 8)}, bytes(8))
    product = "EFORMAT_the_product_of_the_shape_overflows__"
    tensors(product + "elements", {"a": entry("F32", [2 ** 32, 2 ** 32], 0, 8)}, bytes(8))
    tensors(product + "bytes", {"a": entry("F64", [2 ** 62], 0, 8)}, bytes(8))
    tensors("EUNSUPPORTED_dtype_F4_is_not_known", {"a": entry("F4", [16], 0, 8)}, bytes(8))
    tensors("EFORMAT_dtype__missing", {"a": {"shape": [2], "data_offsets": [0, 8]}}, bytes(8))
    tensors("EFORMAT_dtype__number", {"a": entry(32, [2], 0, 8)}, bytes(8))
    whole = "EFORMAT_expected_a_whole_number__"
    tensors(whole + "negative", {"a": entry("F32", [-2], 0, 8)}, bytes(8))
    tensors(whole + "negative_twice", {"a": entry("F32", [-1, -2], 0, 8)}, bytes(8))
    tensors(whole + "real", {"a": entry("F32", [2.0], 0, 8)}, bytes(8))
    tensors(whole + "string", {"a": entry("F32", ["2"], 0, 8)}, bytes(8))
    shape = "EFORMAT_expected_an_array_of_at_most_8_sizes__"
    tensors(shape + "nine", {"a": entry("F32", [1] * 9, 0, 4)}, bytes(4))
    tensors(shape + "number", {"a": entry("F32", 2, 0, 8)}, bytes(8))
    tensors(shape + "missing", {"a": {"dtype": "F32", "data_offsets": [0, 8]}}, bytes(8))
    offsets = "EFORMAT_data_offsets__"
    tensors(offsets + "reversed", {"a": entry("F32", [2], 8, 0)}, bytes(8))
    tensors(offsets + "negative", {"a": entry("F32", [2], -8, 0)}, bytes(8))
    tensors(offsets + "three", {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8, 8]}}, bytes(8))
    tensors(offsets + "missing", {"a": {"dtype": "F32", "shape": [2]}}, bytes(8))
    tensors("EFORMAT_too_big_integer__offset", {"a": entry("F32", [2], 0, 2 ** 70)}, bytes(8))
    tensors("EFORMAT_tensor_a__not_an_object", {"a": 3})


def shards(name, weight_map, files):
    put(name + ".shards/model.safetensors.index.json", header(weight_map))
    for file, table in files.items():
        size = max((e["data_offsets"][1] for e in table.values()), default=0)
        put(name + ".shards/" + file, packed(header(table), bytes(size)))


def indexes():
    a, b = {"a": entry("F32", [2], 0, 8)}, {"b": entry("F32", [1], 0, 4)}
    both = {"1.safetensors": a, "2.safetensors": b}
    shards("OK_a_shard_that_is_not_there", {"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}},
           {"1.safetensors": a})
    shards("OK_a_tensor_that_no_shard_has",
           {"weight_map": {"a": "1.safetensors", "b": "2.safetensors", "c": "2.safetensors"}}, both)
    shards("OK_a_tensor_in_another_shard",
           {"weight_map": {"a": "1.safetensors", "b": "1.safetensors", "z": "2.safetensors"}}, both)
    shards("OK_a_tensor_in_two_shards", {"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}},
           {"1.safetensors": a, "2.safetensors": {**b, "a": entry("F32", [2], 4, 12)}})
    shards("ENOTFOUND_no_such_file__no_shard", {"weight_map": {"a": "1.safetensors"}}, {})
    name = "EFORMAT_expected_a_file_name_in_the_same_folder__"
    shards(name + "slash", {"weight_map": {"a": "../1.safetensors"}}, {"1.safetensors": a})
    shards(name + "empty", {"weight_map": {"a": ""}}, {"1.safetensors": a})
    shards(name + "number", {"weight_map": {"a": 1}}, {"1.safetensors": a})
    table = "EFORMAT_expected_an_object_that_is_not_empty__"
    shards(table + "missing", {"metadata": {}}, {"1.safetensors": a})
    shards(table + "empty", {"weight_map": {}}, {"1.safetensors": a})
    shards(table + "array", {"weight_map": ["1.safetensors"]}, {"1.safetensors": a})
    put("EFORMAT_not_valid_JSON__index.shards/model.safetensors.index.json", b"{")
    put("ENOTFOUND_holds_neither_model.safetensors_nor.shards/notes.txt", b"no tensors here\n")


def blob(**change):
    """A valid blob of 2 x 8 codes of 4 bits in groups of 4, with the named fields or sections replaced."""
    f = {"magic": b"CALMQJ01", "out": 2, "in_": 8, "group": 4, "n_groups": 2, "bits": 4, "symmetric": 0, "act_bits": 0,
         "scale_dtype": 3, "extras": 1, "act_form": 0, "damp": 0.0, "scales": struct.pack("<4f", 1, 2, 3, 4),
         "in_scale": struct.pack("<8f", *[1] * 8), "bias_delta": b"", "zeros": bytes([7, 8, 8, 15]), "codes": bytes(8), "tail": b""}
    f.update(change)
    return (f["magic"] + struct.pack("<4Q", f["out"], f["in_"], f["group"], f["n_groups"]) +
            struct.pack("<6i", f["bits"], f["symmetric"], f["act_bits"], f["scale_dtype"], f["extras"], f["act_form"]) +
            struct.pack("<d", f["damp"]) + f["scales"] + f["in_scale"] + f["bias_delta"] + f["zeros"] + f["codes"] + f["tail"])


def blobs():
    def broken(text, **change):
        put("EFORMAT_" + text + ".qblob", blob(**change))

    put("OK_a_sound_one.qblob", blob())
    put("EFORMAT_too_short__empty.qblob", b"")
    put("EFORMAT_too_short__half_a_head.qblob", blob()[:71])
    put("EFORMAT_its_length_does_not_fit_its_shape__truncated.qblob", blob()[:-1])
    broken("it_does_not_begin_with_CALMQJ01", magic=b"CALMQJ02")
    broken("its_length_does_not_fit_its_shape__tail", tail=b"\0")
    broken("bits_out_of_range__1", bits=1)
    broken("bits_out_of_range__9", bits=9)
    broken("bits_out_of_range__negative", bits=-4)
    broken("bits_out_of_range__activations", act_bits=9)
    broken("bits_out_of_range__negative_activations", act_bits=-1)
    broken("impossible_activations__an_unknown_form", act_bits=8, act_form=4)
    broken("impossible_activations__asymmetric_but_float", act_form=1)
    broken("unknown_dtype_of_scales__F32", scale_dtype=1)
    broken("unknown_dtype_of_scales__negative", scale_dtype=-1)
    broken("impossible_shape__no_rows", out=0)
    broken("impossible_shape__no_columns", in_=0)
    broken("impossible_shape__huge", out=2 ** 63)
    broken("impossible_shape__no_group", group=0)
    broken("impossible_shape__group_wider_than_a_row", group=9, n_groups=1)
    broken("impossible_shape__too_few_groups", n_groups=1)
    broken("its_length_does_not_fit_its_shape__overflow", out=2 ** 32 - 1, in_=2 ** 32 - 1, group=1, n_groups=2 ** 32 - 1)
    broken("a_scale_is_not_finite__nan", scales=struct.pack("<4f", 1, float("nan"), 3, 4))
    broken("a_scale_is_not_finite__infinite", scales=struct.pack("<4f", 1, 2, 3, float("-inf")))
    broken("an_input_scale_is_not__zero", in_scale=struct.pack("<8f", *[1] * 7, 0))
    broken("an_input_scale_is_not__negative", in_scale=struct.pack("<8f", -1, *[1] * 7))
    broken("an_input_scale_is_not__nan", in_scale=struct.pack("<8f", float("nan"), *[1] * 7))
    broken("an_input_scale_is_not__infinite", in_scale=struct.pack("<8f", float("inf"), *[1] * 7))
    put("OK_a_correction_of_biases.qblob", blob(extras=3, bias_delta=struct.pack("<2f", -1, 0)))
    broken("a_correction_of_a_bias_is_not_finite__nan", extras=3, bias_delta=struct.pack("<2f", 0, float("nan")))
    broken("a_correction_of_a_bias_is_not_finite__infinite", extras=2, in_scale=b"",
           bias_delta=struct.pack("<2f", float("inf"), 0))
    broken("its_length_does_not_fit_its_shape__no_correction", extras=3)
    broken("unknown_sections__more", extras=4)
    broken("unknown_sections__negative", extras=-1)
    broken("a_zero_point_out_of_range", zeros=bytes([7, 8, 16, 15]))


if __name__ == "__main__":
    safetensors()
    indexes()
    blobs()
