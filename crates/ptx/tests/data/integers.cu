// Integer arithmetic of all widths.
extern "C" __global__ void integers(int *out, const int *a, const unsigned *b, long long *wide,
                                    unsigned long long *uwide, short *narrow, unsigned char *bytes, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    int x = a[i];
    unsigned y = b[i];
    long long z = wide[i];
    unsigned long long w = uwide[i];
    out[i] = x * 3 + x / 7 - x % 5 + (x << (y & 31)) + (x >> 3) + __clz(x) + __popc(y) + __ffs(x) +
             __brev(y) + __mulhi(x, x) + __umulhi(y, y) + min(x, 4) + max(y, 8u) + abs(x) +
             __sad(x, 4, y) + __funnelshift_l(x, y, 3) + __byte_perm(x, y, 0x5410) + __dp4a(x, x, 1);
    wide[i] = z * z / (w | 1) + __mul64hi(z, z) + __popcll(w) + __clzll(z) + __ffsll(z) +
              __brevll(w) + z % 9 + llabs(z) + (z << (y & 63)) + __mul24(x, x);
    unsigned __int128 product = (unsigned __int128)w * (unsigned)z;
    uwide[i] = w / 10 + w % 1000 + (unsigned long long)(product >> 64);
    narrow[i] = (short)(narrow[i] * 5 + bytes[i]);
    bytes[i] = (unsigned char)(bytes[i] ^ narrow[i]);
}
