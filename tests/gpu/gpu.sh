#!/bin/sh
# What only a machine with a GPU can test: the device contract on the card, and the stories that make sense there, through the whole stack.
# tests/gpu/gpu.sh pack FOLDER        builds and takes along everything
# tests/gpu/gpu.sh run FOLDER OUT [PATTERN]
#                                     on the card: one process a test, result to OUT; exit status
#                                     0 if all passed; only tests whose names match (grep -E).
#                                     JOBS=4 runs four at a time; what fails then is run once more,
#                                     alone ("alone" in OUT: it has passed so). LIMIT=S begins no
#                                     test after so many seconds: OUT names those that are left
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
case ${1:-} in
pack)
  to=$2
  release=${CARGO_TARGET_DIR:-$root/target}/release
  mkdir -p "$to/release/deps" "$to/root/.build"
  # By name: `cargo build --release` leaves an old library where it is.
  cargo build --release --package cumux --package cumux-shim --package cumux-compilers --package cumux-nvml --manifest-path "$root/Cargo.toml"
  (cd "$root" && cargo xtask examples)
  cargo test --release --no-run --package stories --package cumux-device-cuda --manifest-path "$root/Cargo.toml"
  # Two packages have a test called card: the one for real cards names its variable.
  for test in $(ls -t "$release"/deps/card-* | grep -v '\.d$'); do
    if grep -q CUMUX_TEST_CUDA "$test"; then cp "$test" "$to/release/deps/card" && break; fi
  done
  # Its library has a test binary of the same name, without tests.
  for test in $(ls -t "$release"/deps/stories-* | grep -v '\.d$'); do
    if "$test" --list | grep '^confinement::' > /dev/null; then cp "$test" "$to/release/deps/stories" && break; fi
  done
  cp "$release/cumux" "$to/release/cumux"
  cp "$release/libcuda.so" "$release/libcumux_compilers.so" "$release/libcumux_nvml.so" "$to/release/"
  strip "$to"/release/cumux "$to"/release/deps/*
  strip --strip-unneeded "$to"/release/*.so
  cp -r "$root/.build/examples" "$root/.build/tests" "$to/root/.build/"
  cp "$0" "$to/gpu.sh"
  git -C "$root" rev-parse --short HEAD > "$to/commit"
  ;;
run)
  folder=$(cd "$2" && pwd)
  out=$3
  pattern=${4:-.}
  results=$(mktemp -d)
  [ -z "${LIMIT:-}" ] || echo $(($(date +%s) + LIMIT)) > "$results/end"
  CUMUX_TEST_CARD=$(nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,nounits | head -1)
  export CUMUX_TEST_CARD CUMUX_TEST_ROOT="$folder/root" CUMUX_TEST_CUDA=cuda:0 CUMUX_TEST_DEVICE=cuda:0
  printf '%s, %s: `%stests/gpu/gpu.sh run FOLDER OUT%s` at %s\n' "$(date -u +%F)" "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)" \
    "${LIMIT:+LIMIT=$LIMIT }${JOBS:+JOBS=$JOBS }" "${4:+ '$4'}" "$(cat "$folder/commit")" > "$out"
  {
    "$folder/release/deps/card" --list | sed -n 's/: test$//p' | grep -E "$pattern" | sed 's/^/card /'
    # Not here: what needs models of the software GPU or its number of devices; memory_locality needs
    # a B300, a_normal_client and a_group_below_normal a card so slow that one can look on,
    # its_executor_dies marks.
    "$folder/release/deps/stories" --list | sed -n 's/: test$//p' | grep -E "^(cards|commands|confinement|crowd|errors|faults|green|images|ipc|isolation|liar|limits|loss|moving|partitions|priority|running|shares|textures|upgrade|variables)::|^programs::(batches|captured_nodes|graphs_run)|^launches::what_kernels_launch" | grep -vE "::(memory_locality|a_normal_client|a_group_below_normal|several_devices|where_the_card_is_one|what_cannot_be_moved|on_a_card_that_is_one|server_and_executors_die|its_executor_dies_in_the_middle_of_a_kernel)" | grep -E "$pattern" | sed 's/^/stories /'
  } > "$results/all"
  xargs -n 2 -P "${JOBS:-1}" sh "$0" one "$folder" "$results" < "$results/all"
  # Beside others a test may have had too little of the card.
  [ "${JOBS:-1}" = 1 ] || for failed in "$results"/*.failed; do
    [ -e "$failed" ] || continue
    test=$(basename "$failed" .failed)
    mv "$failed" "$results/$test.beside"
    sh "$0" one "$folder" "$results" "${test%% *}" "${test#* }"
  done
  while read -r binary name; do
    test="$results/$binary $name"
    if [ -e "$test.passed" ]; then [ -e "$test.beside" ] && echo "alone   $name" || echo "passed  $name"; elif [ ! -e "$test.failed" ]; then
      [ -e "$test.beside" ] && echo "FAILED  $name (beside others, and no time was left to run it alone)" || echo "left    $name"
    else
      echo "FAILED  $name"
      # Where this machine keeps things is nobody's business.
      neutral="s|$folder/root/||g; s|$folder/||g; s|/tmp/cx[^/ ]*|NODE|g; s#/[^ (]*/\(tests/cu\|examples\)/#\1/#g"
      grep -v '^$' "$test.failed" | grep -v '^running\|^failures\|^test result\|RUST_BACKTRACE' | head -40 | sed "$neutral" | cut -c1-600 | sed 's/^/          /'
    fi
  done < "$results/all" >> "$out"
  failed=$(grep -c '^FAILED' "$out" || true)
  left=$(grep -c '^left' "$out" || true)
  echo "$(grep -c '^passed\|^alone' "$out" || true) passed, $failed failed, $left left" >> "$out"
  cat "$out"
  [ "$failed" = 0 ] && [ "$left" = 0 ]
  ;;
one)
  # One test, in a process of its own; status 0 whatever becomes of it.
  if [ -e "$3/end" ] && [ "$(date +%s)" -ge "$(cat "$3/end")" ]; then exit 0; fi
  if timeout 90 "$2/release/deps/$4" --exact "$5" --nocapture > "$3/$4 $5.log" 2>&1; then mv "$3/$4 $5.log" "$3/$4 $5.passed"; else mv "$3/$4 $5.log" "$3/$4 $5.failed"; fi
  ;;
*)
  sed -n 2,9p "$0"
  exit 2
  ;;
esac
