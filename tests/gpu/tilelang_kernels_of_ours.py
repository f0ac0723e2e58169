"""Kernels in TileLang for the ladder: its compiler reads them from a file."""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def product(m, n, k, tile_m, tile_n, tile_k):
    @T.prim_func
    def kernel(a: T.Tensor((m, k), "float16"), b: T.Tensor((k, n), "float16"), c: T.Tensor((m, n), "float16")):
        with T.Kernel(T.ceildiv(n, tile_n), T.ceildiv(m, tile_m), threads=128) as (bx, by):
            part_a = T.alloc_shared((tile_m, tile_k), "float16")
            part_b = T.alloc_shared((tile_k, tile_n), "float16")
            sums = T.alloc_fragment((tile_m, tile_n), "float32")
            T.clear(sums)
            for step in T.Pipelined(T.ceildiv(k, tile_k), num_stages=3):
                T.copy(a[by * tile_m, step * tile_k], part_a)
                T.copy(b[step * tile_k, bx * tile_n], part_b)
                T.gemm(part_a, part_b, sums)
            for i, j in T.Parallel(tile_m, tile_n):
                sums[i, j] = T.max(sums[i, j], 0.0)
            T.copy(sums, c[by * tile_m, bx * tile_n])

    return kernel


@tilelang.jit(out_idx=[3])
def attention(count, heads, length, size, tile_m, tile_n):
    scale = (1.0 / size) ** 0.5 * 1.44269504
    shape = (count, length, heads, size)

    @T.prim_func
    def kernel(q: T.Tensor(shape, "float16"), k: T.Tensor(shape, "float16"), v: T.Tensor(shape, "float16"), o: T.Tensor(shape, "float16")):
        with T.Kernel(T.ceildiv(length, tile_m), heads, count, threads=128) as (bx, by, bz):
            part_q = T.alloc_shared((tile_m, size), "float16")
            part_k = T.alloc_shared((tile_n, size), "float16")
            part_v = T.alloc_shared((tile_n, size), "float16")
            scores = T.alloc_fragment((tile_m, tile_n), "float32")
            weights = T.alloc_fragment((tile_m, tile_n), "float16")
            sums = T.alloc_fragment((tile_m, size), "float32")
            most = T.alloc_fragment((tile_m,), "float32")
            most_before = T.alloc_fragment((tile_m,), "float32")
            factor = T.alloc_fragment((tile_m,), "float32")
            total = T.alloc_fragment((tile_m,), "float32")
            all_totals = T.alloc_fragment((tile_m,), "float32")
            T.copy(q[bz, bx * tile_m : (bx + 1) * tile_m, by, :], part_q)
            T.fill(sums, 0)
            T.fill(all_totals, 0)
            T.fill(most, -T.infinity("float32"))
            for step in T.Pipelined(T.ceildiv((bx + 1) * tile_m, tile_n), num_stages=1):
                T.copy(k[bz, step * tile_n : (step + 1) * tile_n, by, :], part_k)
                for i, j in T.Parallel(tile_m, tile_n):
                    scores[i, j] = T.if_then_else(bx * tile_m + i >= step * tile_n + j, 0, -T.infinity("float32"))
                T.gemm(part_q, part_k, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(most, most_before)
                T.reduce_max(scores, most, dim=1, clear=False)
                for i in T.Parallel(tile_m):
                    factor[i] = T.exp2(most_before[i] * scale - most[i] * scale)
                for i, j in T.Parallel(tile_m, tile_n):
                    scores[i, j] = T.exp2(scores[i, j] * scale - most[i] * scale)
                T.reduce_sum(scores, total, dim=1)
                for i in T.Parallel(tile_m):
                    all_totals[i] = all_totals[i] * factor[i] + total[i]
                T.copy(scores, weights)
                for i, j in T.Parallel(tile_m, size):
                    sums[i, j] *= factor[i]
                T.copy(v[bz, step * tile_n : (step + 1) * tile_n, by, :], part_v)
                T.gemm(weights, part_v, sums, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(tile_m, size):
                sums[i, j] /= all_totals[i]
            T.copy(sums, o[bz, bx * tile_m : (bx + 1) * tile_m, by, :])

    return kernel


def results(torch, a, b, q, k, v):
    made = product(a.shape[0], b.shape[1], a.shape[1], 128, 128, 32)(a, b)
    count, length, heads, size = q.shape
    attended = attention(count, heads, length, size, 64, 64)(q, k, v)
    parts = (part.transpose(1, 2) for part in (q, k, v))
    wanted = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2)
    assert (attended - wanted).abs().max() < 0.02 and (made - (a.float() @ b.float()).relu()).abs().max() < 0.5
    return [made, attended]
