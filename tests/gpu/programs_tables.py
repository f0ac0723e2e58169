"""Programs of the ladder: tables and learning by RAPIDS. They are left out where their packages are missing; PYTHONPATH=SITE brings along what this has installed:

pip install --no-deps --target SITE cudf-cu13==26.10.2 pylibcudf-cu13==26.10.2 libcudf-cu13==26.10.2 rmm-cu13==26.10.0 librmm-cu13==26.10.0 rapids-logger==0.3.0 libkvikio-cu13==26.10.0 nvidia-libnvcomp-cu13==5.3.0.16 nvidia-nvjitlink==13.3.33 numba-cuda-mlir==0.6.0 cachetools==8.0.2 nvtx==0.2.17 cuml-cu13==26.10.0 libcuml-cu13==26.10.0 cuvs-cu13==26.10.0 libcuvs-cu13==26.10.0 libraft-cu13==26.10.0 pylibraft-cu13==26.10.0 nvforest-cu13==26.10.0 libnvforest-cu13==26.10.0 treelite==4.8.1

The machine itself has pandas, pyarrow, scikit-learn, SciPy, CuPy and Numba with numba-cuda.
"""

import math
from importlib import metadata

from programs_carried import needs


def libraries_ready():
    """RAPIDS needs a newer nvJitLink than PyTorch has, and CUDA's other libraries lie in another folder than RAPIDS looks in."""
    import ctypes
    from cuda.pathfinder import load_nvidia_dynamic_lib
    ctypes.CDLL(str(metadata.distribution("nvidia-nvjitlink").locate_file("nvidia/cu13/lib/libnvJitLink.so.13")))
    for name in ("cublas", "cufft", "cusparse", "cusolver", "curand", "nccl", "nvrtc"):
        load_nvidia_dynamic_lib(name)


def tables_ready():
    import numpy
    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack  # Numba asks for it, NumPy has it no more
    libraries_ready()
    import cudf
    import pandas
    return cudf, pandas, numpy.random.default_rng(8)


def numbers(table):
    """The columns of a table as arrays of floats; NaN stands for what is missing."""
    table = table.to_pandas() if hasattr(table, "to_pandas") else table
    columns = [table[name] for name in table.columns] if hasattr(table, "columns") else [table]
    return [column.astype("float64").to_numpy(na_value=float("nan")) for column in columns]


def compared(found, wanted, close=1e-6):
    """The numbers of a table of cuDF, which have to be those of pandas."""
    import numpy
    ours, theirs = numbers(found), numbers(wanted)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        numpy.testing.assert_allclose(a, b, rtol=close, atol=1e-7)
    return ours


def sales(pandas, random, rows=20000):
    import numpy
    return pandas.DataFrame({
        "shop": random.integers(0, 50, rows), "kind": random.integers(0, 7, rows).astype("int32"), "price": random.normal(size=rows),
        "count": random.integers(1, 100, rows), "weight": random.random(rows).astype(numpy.float32)})


# --- cuDF


@needs("cudf")
def cudf_groups():
    cudf, pandas, random = tables_ready()
    wanted = sales(pandas, random)
    table = cudf.DataFrame(wanted)
    chosen = {"price": ["sum", "mean", "min", "max", "std"], "count": ["sum", "nunique", "count"]}
    pair = [frame.groupby(["shop", "kind"], sort=True).agg(chosen) for frame in (table, wanted)]
    found = compared(*pair)
    found += compared(*(frame.groupby("shop", sort=True)["price"].median() for frame in (table, wanted)))
    found += compared(*(frame.groupby("kind", sort=True)["count"].cumsum() for frame in (table, wanted)))
    return found + compared(*(frame.pivot_table(index="shop", columns="kind", values="count", aggfunc="sum") for frame in (table, wanted)))


@needs("cudf")
def cudf_joins():
    cudf, pandas, random = tables_ready()
    left = sales(pandas, random, 5000)
    right = pandas.DataFrame({"shop": random.permutation(70)[:40], "rent": random.normal(size=40)})
    found = []
    for how in ("inner", "left", "outer"):
        order = ["shop", "kind", "price", "rent"]
        pair = [a.merge(b, on="shop", how=how).sort_values(order).reset_index(drop=True) for a, b in ((cudf.DataFrame(left), cudf.DataFrame(right)), (left, right))]
        found += compared(*pair)
    ours = cudf.DataFrame(left)
    kept = ours.merge(cudf.DataFrame(right), on="shop", how="leftsemi")
    assert len(kept) == left["shop"].isin(right["shop"]).sum()
    return found + numbers(kept.sort_values(["price"])) + numbers(ours[~ours["shop"].isin(right["shop"])])


@needs("cudf")
def cudf_sorts_and_ranks():
    cudf, pandas, random = tables_ready()
    wanted = sales(pandas, random)
    table, found = cudf.DataFrame(wanted), []
    for ask in (
        lambda t: t.sort_values(["kind", "count", "price"], ascending=[True, False, True]).reset_index(drop=True),
        lambda t: t.nlargest(100, "price").reset_index(drop=True),
        lambda t: t["price"].rank(method="average"),
        lambda t: t["count"].cumsum(),
        lambda t: t["price"].cummax(),
        lambda t: t["price"].quantile([0.1, 0.5, 0.9]),
        lambda t: t.drop_duplicates(["shop", "kind"]).sort_values(["shop", "kind"])[["shop", "kind"]],
        lambda t: t["count"].value_counts().sort_index(),
        lambda t: t["price"].where(t["price"] > 0).fillna(-1.0).diff(),
        lambda t: t.eval("price * 2.0 + price"),
        lambda t: t.query("price > 0.5 and shop == 3"),
    ):
        found += compared(ask(table), ask(wanted), close=1e-5)
    return found


@needs("cudf")
def cudf_windows():
    cudf, pandas, random = tables_ready()
    wanted = sales(pandas, random, 4000)
    table, found = cudf.DataFrame(wanted), []
    for ask in (
        lambda t: t["price"].rolling(7).sum(),
        lambda t: t["price"].rolling(20, min_periods=3, center=True).mean(),
        lambda t: t["count"].rolling(5).max(),
        lambda t: t["price"].rolling(10).std(),
        lambda t: t["price"].ewm(alpha=0.3).mean(),
        lambda t: t.groupby("kind", sort=True)["price"].rolling(4).min(),
        lambda t: t.groupby("kind")["price"].shift(2),
    ):
        found += compared(ask(table), ask(wanted))
    return found


@needs("cudf")
def cudf_strings():
    cudf, pandas, random = tables_ready()
    words = ["pear", "Apple 12", "fig-7", "", "Quince", "date 2024-05-06", "übung", "a,b,c"]
    wanted = pandas.Series([words[i] + words[j] for i, j in random.integers(0, 8, (3000, 2))])
    wanted[::17] = None
    text, found = cudf.Series(wanted), []
    for ask in (
        lambda s: s.str.len(),
        lambda s: s.str.contains("[0-9]+-"),
        lambda s: s.str.count("a"),
        lambda s: s.str.upper().str.find("E"),
        lambda s: s.str.extract("([0-9]+)")[0].astype("float64"),
        lambda s: s.str.replace("[aeiou]", "..", regex=True).str.len(),
        lambda s: s.str.split(",", expand=True)[1].str.len(),
        lambda s: (s + "!").str.slice(1, 4).str.startswith("e"),
        lambda s: s.fillna("?").astype("category").cat.codes,
    ):
        found += compared(ask(text), ask(wanted))
    together = text.str.lower().value_counts().sort_index()
    assert together.index.to_pandas().tolist() == wanted.str.lower().value_counts().sort_index().index.tolist()
    return [*found, *numbers(together), *numbers(text.hash_values().astype("float64")), *numbers(text.str.edit_distance("apple"))]


@needs("cudf")
def cudf_dates():
    cudf, pandas, random = tables_ready()
    when = pandas.Timestamp("2019-12-30") + pandas.to_timedelta(random.integers(0, 10**8, 3000), unit="s")
    wanted = pandas.DataFrame({"when": pandas.Series(when).astype("datetime64[ns]"), "much": random.normal(size=3000)})
    table, found = cudf.DataFrame(wanted), []
    for ask in (
        lambda t: t["when"].dt.year * 10000 + t["when"].dt.month * 100 + t["when"].dt.day,
        lambda t: t["when"].dt.dayofweek + 10 * t["when"].dt.quarter,
        lambda t: t["when"].dt.hour * 60 + t["when"].dt.minute,
        lambda t: (t["when"] - t["when"].shift(1)).dt.total_seconds(),
        lambda t: t["when"].dt.is_leap_year,
        lambda t: t.sort_values("when").set_index("when").resample("30D").sum(),
        lambda t: t["when"].dt.floor("D").value_counts().sort_index(),
    ):
        found += compared(ask(table), ask(wanted))
    text = table["when"].dt.strftime("%Y-%m-%d %H:%M:%S")
    assert text.to_pandas().tolist() == wanted["when"].dt.strftime("%Y-%m-%d %H:%M:%S").tolist()
    back = cudf.to_datetime(text, format="%Y-%m-%d %H:%M:%S")
    return [*found, *numbers((back - back.min()).dt.total_seconds())]


@needs("cudf")
def cudf_files_in_memory():
    """Parquet with two compressions, ORC, CSV and JSON: written by cuDF or pandas, and read by the other."""
    cudf, pandas, random = tables_ready()
    import io
    wanted = sales(pandas, random, 6000)
    wanted["name"] = [f"item {number % 97}" for number in range(len(wanted))]
    wanted.loc[::11, "price"] = None
    table, found = cudf.DataFrame(wanted), []
    for compression in ("snappy", "zstd"):
        out = io.BytesIO()
        table.to_parquet(out, compression=compression, row_group_size_rows=2000)
        back = pandas.read_parquet(io.BytesIO(out.getvalue()))
        assert back["name"].tolist() == wanted["name"].tolist()
        compared(back.drop(columns="name"), wanted.drop(columns="name"))
        out = io.BytesIO()
        wanted.to_parquet(out, compression=compression)
        back = cudf.read_parquet(io.BytesIO(out.getvalue()))
        found += compared(back.drop(columns="name"), wanted.drop(columns="name")) + numbers(back["name"].str.len())
    out = io.BytesIO()
    table.to_orc(out)
    found += numbers(cudf.read_orc(io.BytesIO(out.getvalue()))["price"])
    comma = table.to_csv(index=False)
    found += compared(cudf.read_csv(io.StringIO(comma)).drop(columns="name"), wanted.drop(columns="name"), close=1e-5)
    lines = wanted.to_json(orient="records", lines=True)
    return found + compared(cudf.read_json(io.StringIO(lines), lines=True, engine="cudf").drop(columns="name"), wanted.drop(columns="name"), close=1e-5)


def of_one(x):
    return math.sin(x) + 1 if x > 0 else x * x


def of_row(row):
    if row["price"] > 0:
        return row["half"] * row["count"] + math.sqrt(row["weight"])
    return row["price"] - row["count"]


def of_window(window):
    most = 0.0
    for value in window:
        most = max(most, abs(value))
    return most


def of_group(group):
    return group["price"].max() - group["price"].min()


def of_text(text):
    if "7" in text:
        return text.count("1") * 100 + len(text)
    return text.find("of") if text.startswith("  word 1") else -1


@needs("cudf")
def cudf_functions_of_ones_own():
    """Compiled by Numba, with missing values, and linked with a library of cuDF where they take text."""
    cudf, pandas, random = tables_ready()
    wanted = sales(pandas, random, 5000)
    wanted["half"] = wanted["price"].where(wanted["kind"] % 2 == 0)
    table = cudf.DataFrame(wanted)
    table["half"] = table["half"].nans_to_nulls()
    found = compared(table["price"].apply(of_one), wanted["price"].map(of_one))
    shown = (wanted["half"] * wanted["count"] + wanted["weight"].astype("float64") ** 0.5).where(wanted["price"] > 0, wanted["price"] - wanted["count"])
    found += compared(table.apply(of_row, axis=1), shown, close=1e-5)
    found += compared(table["price"].rolling(6, min_periods=6).apply(of_window), wanted["price"].abs().rolling(6).max())
    groups = table.groupby("kind", sort=True)[["kind", "price"]].apply(of_group, engine="jit")
    shown = wanted.groupby("kind")["price"].max() - wanted.groupby("kind")["price"].min()
    return found + compared(groups, shown)


@needs("cudf")
def cudf_functions_of_text():
    cudf, pandas, random = tables_ready()
    wanted = pandas.Series([f"  word {number} of {number * 7 % 100}" for number in random.integers(0, 1000, 2000)])
    return compared(cudf.Series(wanted).apply(of_text), wanted.map(of_text))


@needs("cudf")
def cudf_lists_and_structs():
    cudf, pandas, random = tables_ready()
    lists = [list(map(float, random.normal(size=count))) for count in random.integers(0, 9, 1500)]
    series = cudf.Series(lists)
    assert series.list.len().to_pandas().tolist() == [len(part) for part in lists]
    flat = series.explode()
    ordered = series.list.sort_values().list.get(0)
    table = cudf.DataFrame({"group": random.integers(0, 40, 1500), "value": random.normal(size=1500)})
    collected = table.groupby("group", sort=True)["value"].agg(list)
    pairs = cudf.Series([{"a": number, "b": number * 0.5} for number in range(500)])
    back = cudf.concat([table.melt(id_vars="group"), table.melt(id_vars="group")])
    return [*numbers(flat), *numbers(ordered), *numbers(collected.list.len()), *numbers(collected.explode()), *numbers(pairs.struct.field("b")), *numbers(back["value"])]


@needs("cudf")
def cudf_with_cupy_numba_and_pytorch():
    """A column's memory is seen by four libraries, without a copy."""
    cudf, pandas, random = tables_ready()
    import cupy
    import numpy
    import torch
    from numba import cuda
    table = cudf.DataFrame(random.normal(size=(3000, 8)))
    matrix = table.to_cupy()
    product = matrix.T @ matrix

    @cuda.jit
    def doubled(values):
        i = cuda.grid(1)
        if i < values.size:
            values[i] *= 2

    column = cudf.Series(numpy.arange(5000, dtype="float64"))
    doubled[40, 128](column.values)
    cuda.synchronize()
    tensor = torch.from_dlpack(column.values)
    tensor += 1
    torch.cuda.synchronize()
    assert column.to_pandas().tolist() == [2.0 * number + 1 for number in range(5000)]
    back = cudf.from_dlpack(torch.utils.dlpack.to_dlpack(torch.arange(600, device="cuda") * 3))
    return [product, column.values, tensor.cpu(), *numbers(back), *numbers(cudf.DataFrame(cupy.linalg.inv(product + cupy.eye(8))))]


# --- RMM


@needs("rmm")
def rmm_resources():
    """The same work in memory of each kind."""
    cudf, pandas, random = tables_ready()
    import rmm
    wanted, found = sales(pandas, random, 8000), []
    kinds = rmm.mr
    for resource in (
        kinds.CudaMemoryResource(),
        kinds.PoolMemoryResource(kinds.CudaMemoryResource(), initial_pool_size=2**26, maximum_pool_size=2**28),
        kinds.CudaAsyncMemoryResource(initial_pool_size=2**26),
        kinds.ManagedMemoryResource(),
        kinds.PoolMemoryResource(kinds.ManagedMemoryResource(), initial_pool_size=2**26, maximum_pool_size=2**28),
        kinds.ArenaMemoryResource(kinds.CudaMemoryResource(), arena_size=2**28),
        kinds.BinningMemoryResource(kinds.CudaMemoryResource(), 12, 20),
    ):
        before = kinds.get_current_device_resource()
        counted = kinds.StatisticsResourceAdaptor(resource)
        kinds.set_current_device_resource(counted)
        table = cudf.DataFrame(wanted)
        grouped = table.sort_values(["price"]).groupby("shop", sort=True)["price"].median()
        found += compared(grouped, wanted.groupby("shop")["price"].median())
        assert counted.allocation_counts.peak_bytes > 8000 * 28, counted.allocation_counts
        del table, grouped
        kinds.set_current_device_resource(before)
    return found


@needs("rmm")
def rmm_buffers_and_allocators():
    """Buffers in streams, and pools of RMM that CuPy, Numba and PyTorch allocate from."""
    cudf, pandas, random = tables_ready()
    import cupy
    import numpy
    import rmm
    import torch
    from rmm.allocators.cupy import rmm_cupy_allocator
    from rmm.allocators.torch import rmm_torch_allocator
    from rmm.pylibrmm.stream import Stream
    rmm.reinitialize(pool_allocator=True, initial_pool_size=2**26, maximum_pool_size=2**29)
    cupy.cuda.set_allocator(rmm_cupy_allocator)
    torch.cuda.memory.change_current_allocator(rmm_torch_allocator)
    stream, data = Stream(), random.normal(size=10000)
    buffer = rmm.DeviceBuffer.to_device(data.tobytes(), stream=stream)
    stream.synchronize()
    back = numpy.frombuffer(buffer.tobytes(), dtype="float64")
    assert (back == data).all()
    array = cupy.asarray(data).reshape(100, 100)
    tensor = torch.from_numpy(data.copy()).reshape(100, 100).cuda()
    return [back, array @ array, cupy.sort(array, axis=1), (tensor @ tensor).cpu(), *numbers(cudf.Series(array.ravel()).cumsum())]


# --- cuML


def learning_ready():
    """Numbers to learn from, and labels: four clouds."""
    tables_ready()
    import numpy
    random = numpy.random.default_rng(12)
    middles = random.normal(scale=6, size=(4, 12))
    labels = random.integers(0, 4, 2000)
    return (middles[labels] + random.normal(size=(2000, 12))).astype(numpy.float32), labels.astype(numpy.int32), random


@needs("cuml")
def cuml_clusters():
    x, labels, _ = learning_ready()
    import numpy
    from cuml.cluster import DBSCAN, KMeans
    from sklearn.metrics import adjusted_rand_score
    model = KMeans(n_clusters=4, random_state=3, n_init=3, max_iter=100, output_type="numpy").fit(x)
    assert adjusted_rand_score(labels, model.labels_) > 0.99
    order = numpy.lexsort(model.cluster_centers_.T)
    dense = DBSCAN(eps=6.0, min_samples=10, output_type="numpy").fit_predict(x)
    assert adjusted_rand_score(labels, dense) > 0.9
    return [model.cluster_centers_[order], numpy.array([model.inertia_]), numpy.sort(model.transform(x), axis=1), numpy.sort(numpy.bincount(dense + 1))]


@needs("cuml")
def cuml_components():
    x, _, _ = learning_ready()
    import numpy
    from cuml.decomposition import PCA, TruncatedSVD
    from sklearn.decomposition import PCA as Wanted
    model, wanted = PCA(n_components=4, output_type="numpy").fit(x), Wanted(n_components=4).fit(x)
    numpy.testing.assert_allclose(model.explained_variance_, wanted.explained_variance_, rtol=1e-3)
    numpy.testing.assert_allclose(abs(model.components_), abs(wanted.components_), atol=1e-3)
    shown = model.transform(x)
    back = model.inverse_transform(shown)
    single = TruncatedSVD(n_components=3, output_type="numpy").fit(x)
    return [model.explained_variance_, abs(model.components_), abs(shown), back, single.singular_values_]


@needs("cuml")
def cuml_linear_models():
    x, labels, random = learning_ready()
    import numpy
    from cuml.linear_model import Lasso, LinearRegression, LogisticRegression, Ridge
    from sklearn.linear_model import LinearRegression as Wanted
    y = (x @ random.normal(size=12) + 0.1 * random.normal(size=len(x)) + 2).astype(numpy.float32)
    line = LinearRegression(output_type="numpy").fit(x, y)
    wanted = Wanted().fit(x, y)
    numpy.testing.assert_allclose(line.coef_.ravel(), wanted.coef_, atol=1e-3)
    found = [line.coef_, line.predict(x)]
    for model in (Ridge(alpha=2.0, output_type="numpy"), Lasso(alpha=0.05, output_type="numpy")):
        found.append(model.fit(x, y).predict(x))
    classes = LogisticRegression(output_type="numpy", C=0.01, max_iter=500).fit(x, labels)
    assert classes.score(x, labels) > 0.98
    return [*found, classes.predict_proba(x)]


@needs("cuml")
def cuml_forests():
    x, labels, _ = learning_ready()
    import numpy
    from cuml.ensemble import RandomForestClassifier, RandomForestRegressor
    y = (numpy.sin(x[:, 0]) + x[:, 1] * 0.3).astype(numpy.float32)
    classes = RandomForestClassifier(n_estimators=20, max_depth=8, random_state=5, n_streams=1, output_type="numpy").fit(x, labels)
    values = RandomForestRegressor(n_estimators=20, max_depth=8, random_state=5, n_streams=1, output_type="numpy").fit(x, y)
    guessed = classes.predict(x)
    assert (guessed == labels).mean() > 0.98
    said = values.predict(x)
    assert ((said - y) ** 2).mean() < 0.3 * y.var()
    return [guessed, classes.predict_proba(x), said]


@needs("cuml")
def cuml_neighbours():
    x, labels, _ = learning_ready()
    import numpy
    from cuml.neighbors import KNeighborsClassifier, NearestNeighbors
    from sklearn.neighbors import NearestNeighbors as Wanted
    distances, places = NearestNeighbors(n_neighbors=6, algorithm="brute", output_type="numpy").fit(x).kneighbors(x[:300])
    wanted, _ = Wanted(n_neighbors=6).fit(x).kneighbors(x[:300])
    numpy.testing.assert_allclose(distances[:, 1:], wanted[:, 1:], rtol=1e-2)
    classes = KNeighborsClassifier(n_neighbors=5, output_type="numpy").fit(x, labels)
    assert (classes.predict(x[:300]) == labels[:300]).all()
    return [distances[:, 1:], places[:, 1:], classes.predict_proba(x[:300])]


# --- cuVS


@needs("cuvs")
def cuvs_searches():
    """An exhaustive search, one in lists that are all probed, and one in a graph."""
    x, _, random = learning_ready()
    import cupy
    import numpy
    from cuvs.neighbors import brute_force, cagra, ivf_flat
    data, asked = cupy.asarray(x), cupy.asarray(x[:200] + 0.01)
    wanted = ((x[None] - asked.get()[:, None]) ** 2).sum(axis=2)
    near = numpy.sort(wanted, axis=1)[:, :8]
    exact, places = (cupy.asarray(part) for part in brute_force.search(brute_force.build(data, metric="sqeuclidean"), asked, 8))
    numpy.testing.assert_allclose(exact.get(), near, atol=5e-2, rtol=1e-2)
    lists = ivf_flat.build(ivf_flat.IndexParams(n_lists=16, metric="sqeuclidean"), data)
    probed, _ = ivf_flat.search(ivf_flat.SearchParams(n_probes=16), lists, asked, 8)
    graph = cagra.build(cagra.IndexParams(graph_degree=32, intermediate_graph_degree=64, metric="sqeuclidean"), data)
    _, walked = cagra.search(cagra.SearchParams(itopk_size=128), graph, asked, 8)
    walked = cupy.asarray(walked).get()
    right = numpy.mean([len(set(a) & set(b)) for a, b in zip(walked.tolist(), places.get().tolist())]) / 8
    assert right > 0.9, right
    return [exact, places, cupy.asarray(probed)]
