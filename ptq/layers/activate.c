/* Activation functions by their name in the config. */
#include "ptq/layers/block.h"

#include "ptq/tensor/vector.h"

calm_activate_fn *calm_activation_of(calm_activation activation)
{
    static calm_activate_fn *const functions[] = {[CALM_ACTIVATION_SILU] = calm_vec_silu,
                                                  [CALM_ACTIVATION_GELU] = calm_vec_gelu,
                                                  [CALM_ACTIVATION_GELU_TANH] = calm_vec_gelu_tanh,
                                                  [CALM_ACTIVATION_GELU_QUICK] = calm_vec_gelu_quick,
                                                  [CALM_ACTIVATION_RELU] = calm_vec_relu,
                                                  [CALM_ACTIVATION_RELU2] = calm_vec_relu2};
    return functions[activation];
}

void calm_activate(calm_activation activation, size_t n, float *x)
{
    calm_activation_of(activation)(n, x);
}
