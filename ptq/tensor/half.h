/* 16-bit floats, IEEE 754 binary16 and bfloat16: conversion from and to float32.  Inline, so that loops over them
 * are vectorised. */
#pragma once

#include <stdint.h>
#include <string.h>

/* Returns the float32 with these bits. */
static inline float calm_float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Returns the bits of a float32. */
static inline uint32_t calm_bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* ---- rounding to nearest, ties to even, overflow to infinity; NaN stays NaN, quiet ---- */

/* Rounds to bfloat16, which has seven explicit mantissa bits. */
static inline float calm_round_bf16(float value)
{
    const uint32_t bits = calm_bits_of_float(value), kept = bits + 0x7fffu + (bits >> 16 & 1u);
    const uint32_t number = (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : kept;
    return calm_float_of_bits(number & 0xffff0000u);
}

/* Rounds to binary16, which has ten explicit mantissa bits.  Below 2^-14, adding and subtracting 0.5 rounds to a
 * multiple of 2^-24.  From 65,520 on the result is infinity. */
static inline float calm_round_f16(float value)
{
    const uint32_t bits = calm_bits_of_float(value), magnitude = bits & 0x7fffffffu;
    const uint32_t kept = (magnitude + 0xfffu + (magnitude >> 13 & 1u)) & ~0x1fffu;
    const uint32_t aligned = calm_bits_of_float((calm_float_of_bits(magnitude) + 0.5f) - 0.5f);
    const uint32_t number = magnitude < 0x38800000u ? aligned : kept;
    const uint32_t finite = number >= 0x47800000u ? 0x7f800000u : number;
    const uint32_t nan = (magnitude & ~0x1fffu) | 0x400000u;
    return calm_float_of_bits((bits & 0x80000000u) | (magnitude > 0x7f800000u ? nan : finite));
}

/* ---- conversion ---- */

/* Converts exactly. */
static inline float calm_bf16_to_f32(uint16_t bits)
{
    return calm_float_of_bits((uint32_t)bits << 16);
}

/* Converts with the rounding above. */
static inline uint16_t calm_f32_to_bf16(float value)
{
    return (uint16_t)(calm_bits_of_float(calm_round_bf16(value)) >> 16);
}

/* Converts exactly; infinity and NaN keep their payload. */
static inline float calm_f16_to_f32(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u)
        return calm_float_of_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    if (magnitude < 0x400u) {    /* subnormal: magnitude * 2^-24, exact in float32 */
        const float value = (float)magnitude * 0x1p-24f;
        return sign ? -value : value;
    }
    return calm_float_of_bits(sign | ((magnitude << 13) + (112u << 23)));
}

/* Converts with the rounding above. */
static inline uint16_t calm_f32_to_f16(float value)
{
    const uint32_t bits = calm_bits_of_float(calm_round_f16(value)), magnitude = bits & 0x7fffffffu;
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    if (magnitude >= 0x7f800000u)    /* infinity and NaN */
        return (uint16_t)(sign | 0x7c00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude < 0x38800000u)    /* below 2^-14: a multiple of 2^-24 */
        return (uint16_t)(sign | (uint16_t)(calm_float_of_bits(magnitude) * 0x1p24f));
    return (uint16_t)(sign | (magnitude - (112u << 23)) >> 13);
}
