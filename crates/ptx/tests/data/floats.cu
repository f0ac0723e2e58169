// Single and double precision. No library functions: their code is not ours to keep here.
extern "C" __global__ void floats(float *out, const float *in, double *wide) {
    int i = threadIdx.x;
    float x = in[i];
    double y = wide[i];
    out[i] = sqrtf(x) + rsqrtf(x) + floorf(x) + rintf(x) + __sinf(x) + __cosf(x) + __fdividef(x, 3) + fmaf(x, x, x) +
             __frcp_rn(x) + __fsqrt_rz(x) + __fadd_ru(x, 1) + __fmul_rd(x, x) + copysignf(x, -1) + fminf(x, 2) +
             fmaxf(x, -2) + __saturatef(x) + isnan(x) + __float2int_rn(x) + __float2uint_ru(x) + (float)(short)i +
             __float_as_int(x) + x / 3 + fabsf(x);
    wide[i] = sqrt(y) + rint(y) + __ddiv_rn(y, 3) + __drcp_ru(y) + fma(y, y, y) + (double)(long long)y + (float)y +
              (int)y + __double2hiint(y) + fmin(y, 2.0) + fabs(y) + __ll2double_rd(i) + (y > x ? y : -y) +
              (unsigned long long)y + __hiloint2double(i, 4) + __longlong_as_double(i);
}
