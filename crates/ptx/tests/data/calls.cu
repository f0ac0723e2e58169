// Calls: recursion, function pointers, virtual functions, structures by value, switch tables.
struct Big { int a[10]; double b; };
struct __align__(16) Four { float x, y, z, w; };

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ __noinline__ Big change(int n, Big big) { big.a[n % 10] = n; big.b *= n; return big; }
__device__ __noinline__ Four scaled(Four v, float s) { v.x *= s; v.w += s; return v; }
__device__ __noinline__ int plus_one(int a) { return a + 1; }
__device__ __noinline__ int twice(int a) { return a * 2; }
typedef int (*Operation)(int);
__device__ Operation operations[2] = {plus_one, twice};

struct Shape { __device__ virtual float area() const = 0; __device__ virtual ~Shape() {} };
struct Square : Shape {
    float side;
    __device__ Square(float s) : side(s) {}
    __device__ float area() const override { return side * side; }
};
struct Circle : Shape {
    float radius;
    __device__ Circle(float r) : radius(r) {}
    __device__ float area() const override { return 3.14f * radius * radius; }
};

extern "C" __global__ void calls(int *out, int n, Big big, Four four) {
    int local[32];
    for (int i = 0; i < 32; i++) local[i] = i * n;
    out[0] = fibonacci(n) + operations[n % 2](n) + local[n & 31];
    out[1] = change(n, big).a[n & 7];
    out[2] = scaled(four, 2.f).w;
    Shape *shape = n > 3 ? (Shape *)new Square(n) : (Shape *)new Circle(n);
    out[3] = shape->area();
    delete shape;
}

extern "C" __global__ void __launch_bounds__(256, 2) table(int *out, int n, int m) {
    switch (n) {
    case 0: out[0] = m; break;
    case 1: out[1] = m * 2; break;
    case 2: out[2] = m / 3; break;
    case 3: out[m] = 3; break;
    case 4: out[4] = out[5]; break;
    case 5: out[5] = fibonacci(m); break;
    case 6: out[6] = m ^ 4; break;
    case 7: out[8] = 9; break;
    case 8: out[n] = out[1] * 19; break;
    case 9: out[8] = out[9] * 9; break;
    case 10: out[m] += 3; break;
    default: out[9] = 0;
    }
}

template <typename T, int N> __global__ void transpose(T *out, T value) {
    __shared__ T tile[N][N + 1];
    tile[threadIdx.y][threadIdx.x] = value;
    __syncthreads();
    out[threadIdx.x * N + threadIdx.y] = tile[threadIdx.x][threadIdx.y];
}
template __global__ void transpose<double, 8>(double *, double);
template __global__ void transpose<float4, 4>(float4 *, float4);
template __global__ void transpose<uchar3, 4>(uchar3 *, uchar3);

// What compilers rarely emit: selectors, pairs, carries, special registers, dynamic stack.
extern "C" __global__ void oddities(unsigned *out, unsigned n) {
    unsigned x = n;
    asm volatile("{ .reg .pred p, q; setp.lt.and.s32 p|q, %1, %0, !p; selp.b32 %0, 1, 0, q; add.cc.u32 %0, %0, %1; addc.u32 %0, %0, 0; mad.lo.cc.u32 %0, %0, 2, 3; madc.hi.u32 %0, %0, 3, 4; }" : "+r"(x) : "r"(n));
    asm volatile("vadd.s32.s32.s32.sat %0, %0.b0, %1.h1; prmt.b32.f4e %0, %0, %1, 3; shf.l.wrap.b32 %0, %0, %1, 4; lop3.b32 %0, %0, %1, 7, 0x96;" : "+r"(x) : "r"(n));
    unsigned *stack = (unsigned *)alloca(n * 4);
    stack[x % n] = x;
    unsigned special;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(special));
    asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(out[3]));
    out[0] = stack[0] + special;
}
