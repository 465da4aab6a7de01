/* Slow versions of parts. */
#include "tests/support/slow_parts.h"

#include "algorithms/chain.h"
#include "tests/support/normals.h"

double *slow_doubles(size_t n)
{
    double *values;
    ck_ok(CALM_NEW(ctx, ctx->out, values, n));
    return values;
}

void slow_problem_measure(slow_problem *p)
{
    size_t in = p->in;
    double *gram = slow_doubles(in * in), *sum = slow_doubles(in), *sumabs = slow_doubles(in);
    float *absmax;
    ck_ok(CALM_NEW(ctx, ctx->out, absmax, in));
    for (size_t t = 0; t < p->rows; t++)
        for (size_t i = 0; i < in; i++) {
            const float *x = p->x + t * in;
            absmax[i] = fmaxf(absmax[i], fabsf(x[i]));
            sum[i] += x[i];
            sumabs[i] += fabsf(x[i]);
            for (size_t j = 0; j < in; j++)
                gram[i * in + j] += (double)x[i] * x[j];
        }
    for (size_t i = 0; i < in * in; i++)
        p->h[i] = gram[i] / (double)p->rows;
    p->stats = (calm_stats){.rows = p->rows, .gram = gram, .absmax = absmax, .sum = sum, .sumabs = sumabs,
                            .samples = p->x, .n_samples = p->rows};
}

/* Returns normal numbers of stream k, which live until the end of the test. */
static const double *drawn(uint64_t k, size_t n)
{
    return memcpy(slow_doubles(n), test_normals(7, k, n), n * sizeof(double));
}

void slow_problem_new(slow_problem *p, size_t out, size_t in, size_t rows, const char *scheme)
{
    enum { FACTORS = 6 };
    *p = (slow_problem){.out = out, .in = in, .rows = rows, .h = slow_doubles(in * in)};
    ck_ok(CALM_NEW(ctx, ctx->out, p->w, out * in));
    ck_ok(CALM_NEW(ctx, ctx->out, p->x, rows * in));
    const double *w = drawn(0, out * in), *own = drawn(1, rows * in), *of_row = drawn(2, rows * FACTORS),
                 *of_input = drawn(3, FACTORS * in), *spread = drawn(4, in);
    for (size_t i = 0; i < out * in; i++)
        p->w[i] = (float)(0.05 * w[i]);
    for (size_t t = 0; t < rows; t++)
        for (size_t j = 0; j < in; j++) {
            double x = own[t * in + j];
            for (size_t f = 0; f < FACTORS; f++)
                x += 0.5 * of_row[t * FACTORS + f] * of_input[f * in + j];
            p->x[t * in + j] = (float)(x * exp(0.5 * spread[j]));
        }
    slow_problem_measure(p);
    p->linear = (calm_linear){"linear", out, in, p->w, false};
    p->job = (calm_job){.name = "job", .linears = &p->linear, .n_linears = 1, .stats = &p->stats};
    ck_ok(calm_scheme_parse(ctx, scheme, &p->job.scheme));
}

calm_qjob slow_run(const slow_problem *p, const char *chain)
{
    calm_algorithm *algorithm;
    calm_qjob qjob;
    ck_ok(calm_algorithm_parse(ctx, chain, &algorithm));
    ck_ok(calm_algorithm_run(ctx, algorithm, &p->job, &qjob));
    return qjob;
}

void slow_token(const calm_scheme *scheme, const float *x, size_t n, float *y)
{
    const float half = (float)(1 << (scheme->act_bits - 1)), lowest = -half, highest = half - 1;
    float lo = 0, hi = 0, zero = 0;
    for (size_t j = 0; j < n; j++) {
        lo = fminf(lo, x[j]);
        hi = fmaxf(hi, x[j]);
    }
    float s = scheme->act_asymmetric ? (hi - lo) / (2 * half - 1) : fmaxf(-lo, hi) / (half - 0.5f);
    if (scheme->act_asymmetric)
        zero = rintf(fminf(fmaxf(lowest - lo / s, lowest), highest));
    for (size_t j = 0; j < n; j++)
        y[j] = (rintf(fminf(fmaxf(x[j] / s + zero, lowest), highest)) - zero) * s;
}

double *slow_damped(const slow_problem *p)
{
    double *h = slow_doubles(p->in * p->in), mean = 0;
    memcpy(h, p->h, p->in * p->in * sizeof *h);
    for (size_t j = 0; j < p->in; j++)
        mean += h[j * p->in + j] / (double)p->in;
    for (size_t j = 0; j < p->in; j++)
        h[j * p->in + j] += 0.01 * mean;
    return h;
}

size_t slow_zero(const calm_qjob *qjob, size_t r, size_t g)
{
    return qjob->zeros ? qjob->zeros[r * qjob->n_groups + g] : (size_t)1 << (qjob->scheme.bits - 1);
}

/* Returns the clipped code minus the zero point. */
double slow_rounded(const calm_scheme *scheme, double value, size_t zero)
{
    double lo = (scheme->bits == 8 && scheme->symmetric ? 1 : 0) - (double)zero;
    double hi = (double)((1 << scheme->bits) - 1) - (double)zero;
    return fmin(fmax(rint(value), lo), hi);
}

float slow_storable(double s)
{
    if (fabs(s) < 0x1p-126)    /* a group of zeros has the least scale that float16 also holds exactly */
        return copysignf(s == 0 ? 0x1p-17f : 0x1p-126f, (float)s);
    return calm_bf16_to_f32(calm_f32_to_bf16((float)s));
}

/* Computes scale and zero point from weights by docs/method.md section 1. */
void slow_absmax(const calm_scheme *scheme, const double *w, size_t n, float *scale, size_t *zero)
{
    double most = (1 << scheme->bits) - 1, lo = 0, hi = 0;
    for (size_t j = 0; j < n; j++) {
        lo = fmin(lo, w[j]);
        hi = fmax(hi, w[j]);
    }
    if (scheme->symmetric) {
        *scale = slow_storable(2 * fmax(-lo, hi) / most);
        *zero = (size_t)1 << (scheme->bits - 1);
        return;
    }
    *scale = slow_storable((hi - lo) / most);
    *zero = (size_t)fmin(fmax(rint(-lo / *scale), 0), most);
}

static double slow_group_loss(const calm_scheme *scheme, const float *w, const double *h, size_t stride, size_t n,
                              float s, size_t zero)
{
    double loss = 0;
    for (size_t j = 0; j < n; j++) {
        double e = w[j] - s * slow_rounded(scheme, w[j] / (double)s, zero);
        loss += (h ? h[j * stride] : 1) * e * e;
    }
    return loss;
}

/* Tries spans, then least squares while it helps; writes *zero. */
float slow_search(const calm_scheme *scheme, const float *w, const double *h, size_t stride, size_t n, bool both,
                  bool refine, size_t *zero)
{
    double lo = 0, hi = 0, most = (1 << scheme->bits) - 1, best_loss = INFINITY;
    double least = scheme->bits == 2 ? 0.20 : scheme->bits == 3 ? 0.30 : 0.35;
    float best = 0;
    for (size_t j = 0; j < n; j++) {
        lo = fmin(lo, w[j]);
        hi = fmax(hi, w[j]);
    }
    for (int i = -1; i < 36; i++)
        for (int sign = 1; sign >= (both ? -1 : 1); sign -= 2) {
            double p = i < 0 ? 1 : 1.1 - i * (1.1 - least) / 35;
            float s = slow_storable(p * (scheme->symmetric ? 2 * fmax(-lo, hi) : hi - lo) / most);
            size_t z = scheme->symmetric ? (size_t)1 << (scheme->bits - 1) : (size_t)fmin(rint(-p * lo / s), most);
            double loss = slow_group_loss(scheme, w, h, stride, n, (float)sign * s, z);
            if (loss < best_loss) {
                best_loss = loss;
                best = (float)sign * s;
                *zero = z;
            }
        }
    for (int round = 0; refine && round < 8; round++) {
        double wq = 0, qq = 0;
        for (size_t j = 0; j < n; j++) {
            double q = slow_rounded(scheme, w[j] / (double)best, *zero), hj = h ? h[j * stride] : 1;
            wq += hj * w[j] * q;
            qq += hj * q * q;
        }
        double loss = slow_group_loss(scheme, w, h, stride, n, slow_storable(wq / qq), *zero);
        if (!(loss < best_loss))
            break;
        best_loss = loss;
        best = slow_storable(wq / qq);
    }
    return best;
}

double slow_loss(const double *h, const float *w, const double *q, const float *scale, size_t in, size_t group)
{
    double loss = 0;
    for (size_t i = 0; i < in; i++)
        for (size_t j = 0; j < in; j++)
            loss += (w[i] - scale[i / group] * q[i]) * h[i * in + j] * (w[j] - scale[j / group] * q[j]);
    return loss;
}

void slow_solve(double *a, double *b, size_t n, size_t m)
{
    for (size_t p = 0; p < n; p++)
        for (size_t i = 0; i < n; i++) {
            double f = a[i * n + p] / a[p * n + p];
            for (size_t j = p; i != p && j < n; j++)
                a[i * n + j] -= f * a[p * n + j];
            for (size_t j = 0; i != p && j < m; j++)
                b[i * m + j] -= f * b[p * m + j];
        }
    for (size_t i = 0; i < n * m; i++)
        b[i] /= a[i / m * n + i / m];
}

/* The error: terms of H_ij and of steps of Cholesky's factorisation have magnitudes up to z_i z_j, z_i^2 the diagonal
 * (Cauchy and Schwarz), those of C_ij up to z_i y_j, y_j^2 = E b_j^2.  Sums here and there have at most rows + 2 I
 * terms, so both are off by d = 2 (rows + 2 I) 2^-53 of that, and T_ij by (|H^-1| d z)_i (sum_k z_k |T_kj| + y_j). */
void slow_fit_weights(slow_fit *fit, const float *w, size_t out, size_t in)
{
    const double d = 2 * (double)(fit->rows + 2 * in) * 0x1p-53;
    double *h = slow_doubles(in * in), *t = slow_doubles(in * in), *z = slow_doubles(in), *left = slow_doubles(in),
           *right = slow_doubles(in), shift = 0;
    memcpy(h, fit->h, in * in * sizeof *h);
    memcpy(t, fit->c, in * in * sizeof *t);
    for (size_t j = 0; j < in; j++)
        shift += fit->lambda * h[j * in + j] / (double)in;
    for (size_t j = 0; j < in; j++) {
        h[j * in + j] += shift;
        t[j * in + j] += shift;
        z[j] = sqrt(h[j * in + j]);
    }
    const double *inverse = slow_inverted(h, in);
    slow_solve(h, t, in, in);
    for (size_t i = 0; i < in; i++) {
        right[i] = sqrt(fit->power[i] + shift);
        for (size_t k = 0; k < in; k++) {
            left[i] += d * fabs(inverse[i * in + k]) * z[k];
            right[i] += z[k] * fabs(t[k * in + i]);
        }
    }
    fit->fitted = slow_doubles(out * in);
    fit->error = slow_doubles(out * in);
    for (size_t r = 0; r < out; r++)
        for (size_t i = 0; i < in; i++) {
            double sum = 0, error = 0;
            const double own = w[r * in + i];
            for (size_t j = 0; j < in; j++) {
                const double wj = w[r * in + j];
                sum += wj * t[i * in + j];
                error += fabs(wj) * (left[i] * right[j] + 2 * (double)in * 0x1p-53 * fabs(t[i * in + j]));
            }
            fit->fitted[r * in + i] = own + fit->alpha * (sum - own);
            fit->error[r * in + i] = error + 6 * 0x1p-53 * (fabs(own) + fabs(sum));    /* 3 operations, twice */
        }
}

void slow_check_fit(const slow_problem *p, const char *step, float *in_scale, const slow_fit *fit)
{
    const size_t in = p->in;
    calm_algorithm *algorithm;
    calm_problem by_hand = {.job = &p->job, .out = p->out, .in = in, .h = slow_doubles(in * in),
                            .h_diag = slow_doubles(in), .in_scale = in_scale};
    ck_ok(CALM_NEW(ctx, ctx->out, by_hand.w, p->out * in));
    for (size_t i = 0; i < p->out * in; i++)
        by_hand.w[i] = in_scale ? p->w[i] * in_scale[i % in] : p->w[i];
    for (size_t i = 0; i < in; i++) {
        for (size_t j = 0; j < in; j++)
            by_hand.h[i * in + j] = p->h[i * in + j] / (in_scale ? (double)in_scale[i] * (double)in_scale[j] : 1);
        by_hand.h_diag[i] = by_hand.h[i * in + i];
    }
    ck_ok(calm_algorithm_parse(ctx, test_format("%s+absmax+nearest", step), &algorithm));
    ck_ok(algorithm->steps[0].part->run.transform(ctx, &by_hand, algorithm->steps[0].opts));
    for (size_t i = 0; i < p->out * in; i++)
        ck_near(by_hand.w[i], fit->fitted[i], 0x1p-24 * fabs(fit->fitted[i]) + fit->error[i]);
}

void slow_sweep_column(const calm_qjob *qjob, size_t r, const double *h, const float *w, double *q, const float *scale,
                       size_t j)
{
    const size_t in = qjob->in, group = qjob->group;
    double sum = 0;
    for (size_t k = 0; k < in; k++)
        if (k != j)
            sum += h[j * in + k] * (w[k] - scale[k / group] * q[k]);
    q[j] = slow_rounded(&qjob->scheme, (w[j] + sum / h[j * in + j]) / scale[j / group],
                        slow_zero(qjob, r, j / group));
}

void slow_sweep(const calm_qjob *qjob, size_t r, const double *h, const float *w, double *q, const float *scale)
{
    for (size_t j = 0; j < qjob->in; j++)
        slow_sweep_column(qjob, r, h, w, q, scale, j);
}

void slow_channel_scales(const slow_problem *p, const double *raw, double *s)
{
    double logs = 0, n_live = 0;
    for (size_t j = 0; j < p->in; j++) {
        double product = 1, count = 0;
        for (size_t k = 0; k < p->in; k++)
            if (raw[k] > 0 && (k == j || (p->job.absorb_group && p->job.absorb_group[k] == p->job.absorb_group[j]))) {
                product *= raw[k];
                count++;
            }
        s[j] = count > 0 ? pow(product, 1 / count) : 0;
        logs += s[j] > 0 ? log(s[j]) : 0;
        n_live += s[j] > 0;
    }
    for (size_t j = 0; j < p->in; j++)
        s[j] = s[j] > 0 ? s[j] / exp(logs / n_live) : 1;
}

double *slow_inverted(const double *a, size_t n)
{
    double *m = slow_doubles(n * n), *inverse = slow_doubles(n * n);
    memcpy(m, a, n * n * sizeof *m);
    for (size_t i = 0; i < n; i++)
        inverse[i * n + i] = 1;
    for (size_t p = 0; p < n; p++) {
        double pivot = m[p * n + p];
        for (size_t j = 0; j < n; j++) {
            m[p * n + j] /= pivot;
            inverse[p * n + j] /= pivot;
        }
        for (size_t i = 0; i < n; i++) {
            double f = m[i * n + p];
            for (size_t j = 0; i != p && j < n; j++) {
                m[i * n + j] -= f * m[p * n + j];
                inverse[i * n + j] -= f * inverse[p * n + j];
            }
        }
    }
    return inverse;
}

void slow_eliminate(double *inverse, size_t n, size_t j)
{
    double pivot = inverse[j * n + j];
    double *column = slow_doubles(n), *row = slow_doubles(n);
    for (size_t i = 0; i < n; i++) {
        column[i] = inverse[i * n + j];
        row[i] = inverse[j * n + i];
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++)
            inverse[i * n + k] -= column[i] * row[k] / pivot;
}

static void slow_scales(const double *h, const float *w, const double *q, float *scale, size_t in, size_t group)
{
    size_t n = (in + group - 1) / group;
    double *a = slow_doubles(n * n), *b = slow_doubles(n), ridge = 0;
    for (size_t i = 0; i < in; i++)
        for (size_t j = 0; j < in; j++) {
            a[i / group * n + j / group] += q[i] * h[i * in + j] * q[j];
            b[i / group] += q[i] * h[i * in + j] * w[j];
        }
    for (size_t g = 0; g < n; g++)
        ridge += 1e-6 * a[g * n + g] / (double)n;
    for (size_t g = 0; g < n; g++)
        a[g * n + g] += ridge;
    slow_solve(a, b, n, 1);
    float *next;
    ck_ok(CALM_NEW(ctx, ctx->out, next, n));
    for (size_t g = 0; g < n; g++)
        next[g] = slow_storable(b[g]);
    if (slow_loss(h, w, q, next, in, group) < slow_loss(h, w, q, scale, in, group))
        memcpy(scale, next, n * sizeof *scale);
}

/* Sweeps row r group by group with its zero point, one less and one more, and keeps the best of the three. */
static void slow_sweep_zeros(const calm_qjob *qjob, size_t r, const double *h, const float *w, double *q,
                             const float *scale)
{
    static const int shifts[] = {0, -1, 1};
    const size_t in = qjob->in, group = qjob->group;
    double *trial = slow_doubles(in), *best = slow_doubles(in);
    for (size_t g = 0; g < qjob->n_groups; g++) {
        uint8_t *zero = &qjob->zeros[r * qjob->n_groups + g];
        const int old = *zero;
        double least = INFINITY;
        int chosen = old;
        for (size_t i = 0; i < 3; i++) {
            if (old + shifts[i] < 0 || old + shifts[i] >= 1 << qjob->scheme.bits)
                continue;
            *zero = (uint8_t)(old + shifts[i]);
            memcpy(trial, q, in * sizeof *trial);
            for (size_t j = g * group; j < calm_size_min((g + 1) * group, in); j++)
                slow_sweep_column(qjob, r, h, w, trial, scale, j);
            const double loss = slow_loss(h, w, trial, scale, in, group);
            if (!(loss < least))
                continue;
            least = loss;
            chosen = *zero;
            memcpy(best, trial, in * sizeof *best);
        }
        *zero = (uint8_t)chosen;
        memcpy(q, best, in * sizeof *q);
    }
}

/* Records the loss of a row at the next step; returns whether the row continues. */
static bool slow_stays(slow_path *path, double loss)
{
    if (!path)
        return true;
    const int step = path->n++;
    ck_assert_int_lt(step, SLOW_STEPS);
    path->loss[step] = loss;
    return !path->fall || loss * path->fall[step] < path->best;
}

void slow_descent(const calm_qjob *qjob, size_t r, const double *h, const float *w, double *q, float *scale,
                  int rounds, bool sweeps, slow_path *path)
{
    const size_t in = qjob->in, group = qjob->group;
    double loss = slow_loss(h, w, q, scale, in, group);
    if (!slow_stays(path, loss))
        return;
    for (int round = 0; round < rounds; round++) {
        const double start = loss;
        slow_scales(h, w, q, scale, in, group);
        if (!slow_stays(path, slow_loss(h, w, q, scale, in, group)))
            return;
        if (sweeps && qjob->zeros)
            slow_sweep_zeros(qjob, r, h, w, q, scale);
        else if (sweeps)
            slow_sweep(qjob, r, h, w, q, scale);
        loss = slow_loss(h, w, q, scale, in, group);
        ck_assert(loss <= start * (1 + 1e-12));
        if (!slow_stays(path, loss) || !(start - loss > 1e-4 * start))
            return;
    }
}

void slow_check_codes(const calm_qjob *qjob, const double *q)
{
    size_t wrong = 0;
    for (size_t r = 0; r < qjob->out; r++)
        for (size_t j = 0; j < qjob->in; j++)
            wrong += qjob->codes[r * qjob->in + j] - (double)slow_zero(qjob, r, j / qjob->group) != q[r * qjob->in + j];
    ck_assert_msg(wrong == 0, "%zu of %zu codes differ", wrong, qjob->out * qjob->in);
}
