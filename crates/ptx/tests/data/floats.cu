// Single and double precision, with libdevice.
extern "C" __global__ void floats(float *out, const float *in, double *wide) {
    int i = threadIdx.x;
    float x = in[i];
    double y = wide[i];
    out[i] = sinf(x) + expf(x) + powf(x, 1.5f) + sqrtf(x) + rsqrtf(x) + fmodf(x, 3) + floorf(x) +
             rintf(x) + __sinf(x) + __expf(x) + __fdividef(x, 3) + fmaf(x, x, x) + __frcp_rn(x) +
             __fsqrt_rz(x) + __fadd_ru(x, 1) + copysignf(x, -1) + log2f(x) + fminf(x, 2) +
             __saturatef(x) + isnan(x) + __float2int_rn(x) + __float2uint_ru(x) + (float)(short)i;
    wide[i] = exp(y) + log(y) + sqrt(y) + cbrt(y) + erf(y) + rint(y) + __ddiv_rn(y, 3) +
              __drcp_ru(y) + fma(y, y, y) + (double)(long long)y + (float)y + (int)y + __double2hiint(y);
}
