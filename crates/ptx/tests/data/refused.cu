// Textures, tensor cores and asynchronous copies: parsed, whether the software GPU runs them or not.
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

extern "C" __global__ void textures(cudaTextureObject_t t, cudaSurfaceObject_t s, float *out) {
    out[0] = tex2D<float>(t, 1.f, 2.f) + tex1Dfetch<float>(t, 3) + tex2Dgather<float4>(t, 1, 2, 0).y;
    surf2Dwrite(out[1], s, 4, 2);
    out[2] = surf2Dread<float>(s, 4, 1);
}

extern "C" __global__ void tensors(half *a, half *b, float *c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.f);
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) copies(int *out, const void *map) {
    __shared__ alignas(128) int tile[64];
    __shared__ unsigned long long barrier;
    unsigned t = (unsigned)__cvta_generic_to_shared(tile), b = (unsigned)__cvta_generic_to_shared(&barrier), r;
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;" ::"r"(b));
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %3}], [%2];" ::"r"(t), "l"(map), "r"(b), "r"(0));
    asm volatile("{ .reg .pred P; W: mbarrier.try_wait.parity.shared::cta.b64 P, [%0], 0; @P bra D; bra W; D: }" ::"r"(b));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16; cp.async.commit_group; cp.async.wait_group 0;" ::"r"(t), "l"(out));
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;");
    asm volatile("mapa.shared::cluster.u32 %0, %1, 1;" : "=r"(r) : "r"(t));
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(r), "r"(3), "r"(b));
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(t));
    out[0] = r + tile[0];
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.u32 %0, [%1]; prefetch.global.L2 [%1];" : "=r"(r) : "l"(out));
    out[1] = r;
}
