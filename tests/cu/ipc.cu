// Memory and events that two programs share. Does what lines on its standard input say, and answers
// each with one line "N: answer", N counting from 1. Prints "ready" at the start.
//
//   make COUNT      allocates COUNT integers, fills them with i*3+1       -> their handle
//   inner           the handle of an address inside what was made         -> a handle
//   open HANDLE     opens them                                            -> an error's name
//   again HANDLE    opens them once more                                  -> "same" or "different"
//   close           closes what is open once                              -> an error's name
//   free            frees what was made                                   -> an error's name
//   fill V          writes i*3+V                                          -> an error's name
//   check V         looks whether i*3+V is there                          -> "right" or "wrong at i"
//   taken           allocates 200 pieces of that size, and frees them     -> "elsewhere" or "there"
//   event           makes an event for other programs                     -> its handle
//   attend HANDLE   opens it                                              -> an error's name
//   later V         fills with V in a stream that a host function stops, and records the event
//   go              lets the host function end
//   query           asks for the event                                    -> an error's name
//   wait            waits for the event                                   -> an error's name
//   copy V          waits for the event in a stream and checks behind it  -> as check
//
// "ipc lingering" releases physical memory of which a descriptor is open.
// "ipc descriptors" starts itself twice and passes descriptors of physical memory and of a pool
// between the two.
#include "driver.cuh"

#include <cstring>
#include <condition_variable>
#include <mutex>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

__global__ void write_all(int *values, int count, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] = i * 3 + value;
}

static std::mutex mutex;
static std::condition_variable changed;
static int let_go = 0, stopped = 0;

static void stop(void *) {
    std::unique_lock<std::mutex> lock(mutex);
    const int mine = ++stopped;
    changed.wait(lock, [&] { return let_go >= mine; });
}

static std::string hex(const void *bytes, size_t length) {
    std::string text;
    char two[3];
    for (size_t i = 0; i < length; ++i) {
        std::snprintf(two, sizeof two, "%02x", static_cast<const unsigned char *>(bytes)[i]);
        text += two;
    }
    return text;
}

static void unhex(const std::string &text, void *bytes, size_t length) {
    for (size_t i = 0; i < length && i * 2 + 1 < text.size(); ++i) {
        static_cast<unsigned char *>(bytes)[i] = static_cast<unsigned char>(std::stoi(text.substr(i * 2, 2), nullptr, 16));
    }
}

static int *values = nullptr;
static int count = 0;

static cudaError_t fill(int value, cudaStream_t stream) {
    write_all<<<(count + 255) / 256, 256, 0, stream>>>(values, count, value);
    return cudaGetLastError();
}

static std::string check(int value, cudaStream_t stream) {
    std::vector<int> found(count);
    cudaError_t error = cudaMemcpyAsync(found.data(), values, count * sizeof(int), cudaMemcpyDeviceToHost, stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    if (error != cudaSuccess) return cudaGetErrorName(error);
    for (int i = 0; i < count; ++i) {
        if (found[i] != i * 3 + value) return "wrong at " + std::to_string(i) + ": " + std::to_string(found[i]);
    }
    return "right";
}

// ---- descriptors between two processes

static void pass(int socket, const void *bytes, size_t length, int descriptor) {
    char control[CMSG_SPACE(sizeof(int))] = {};
    iovec part = {const_cast<void *>(bytes), length};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (descriptor >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
    }
    if (sendmsg(socket, &message, 0) != static_cast<ssize_t>(length)) std::exit(3);
}

static int take(int socket, void *bytes, size_t length) {
    char control[CMSG_SPACE(sizeof(int))] = {};
    iovec part = {bytes, length};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (recvmsg(socket, &message, MSG_WAITALL) != static_cast<ssize_t>(length)) std::exit(4);
    int descriptor = -1;
    if (cmsghdr *header = CMSG_FIRSTHDR(&message)) std::memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
    return descriptor;
}

static const size_t PIECE = 4 << 20;

static CUdeviceptr map(CUmemGenericAllocationHandle handle) {
    auto reserve = driver<CUresult (*)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)>("cuMemAddressReserve");
    auto map = driver<CUresult (*)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long)>("cuMemMap");
    auto access = driver<CUresult (*)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t)>("cuMemSetAccess");
    CUdeviceptr address;
    CHECK_DRIVER(reserve(&address, PIECE, 0, 0, 0));
    CHECK_DRIVER(map(address, PIECE, 0, handle, 0));
    CUmemAccessDesc both = {};
    both.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    both.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK_DRIVER(access(address, PIECE, &both, 1));
    return address;
}

static int exporter(int socket) {
    CHECK(cudaFree(nullptr));
    auto create = driver<CUresult (*)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long)>("cuMemCreate");
    auto release = driver<CUresult (*)(CUmemGenericAllocationHandle)>("cuMemRelease");
    auto unmap = driver<CUresult (*)(CUdeviceptr, size_t)>("cuMemUnmap");
    auto give = driver<CUresult (*)(void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long)>("cuMemExportToShareableHandle");
    auto receive = driver<CUresult (*)(CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType)>("cuMemImportFromShareableHandle");
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemGenericAllocationHandle handle, own, closed;
    CHECK_DRIVER(create(&closed, PIECE, &properties, 0));
    int descriptor = -1;
    std::printf("not asked for: %s\n", name_of(give(&descriptor, closed, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)));
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CHECK_DRIVER(create(&handle, PIECE, &properties, 0));
    CHECK_DRIVER(give(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CHECK_DRIVER(receive(&own, reinterpret_cast<void *>(static_cast<uintptr_t>(descriptor)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    std::printf("its own descriptor: %s\n", own == handle ? "the same memory" : "FAIL");
    CHECK_DRIVER(release(own));
    CUdeviceptr address = map(handle);
    values = reinterpret_cast<int *>(address);
    count = PIECE / sizeof(int);
    CHECK(fill(5, 0));
    CHECK(cudaDeviceSynchronize());
    pass(socket, "memory", 6, descriptor);
    close(descriptor);
    char word[6];
    take(socket, word, 6);
    std::printf("what the other wrote: %s\n", check(6, 0).c_str());
    // A pool and two blocks of it.
    cudaMemPoolProps wish = {};
    wish.allocType = cudaMemAllocationTypePinned;
    wish.handleTypes = cudaMemHandleTypePosixFileDescriptor;
    wish.location.type = cudaMemLocationTypeDevice;
    cudaMemPool_t pool;
    CHECK(cudaMemPoolCreate(&pool, &wish));
    CHECK(cudaMemPoolExportToShareableHandle(&descriptor, pool, cudaMemHandleTypePosixFileDescriptor, 0));
    void *blocks[2];
    cudaMemPoolPtrExportData data[2];
    for (int i = 0; i < 2; ++i) {
        CHECK(cudaMallocFromPoolAsync(&blocks[i], 4096, pool, 0));
        CHECK(cudaMemPoolExportPointer(&data[i], blocks[i]));
        values = static_cast<int *>(blocks[i]);
        count = 1024;
        CHECK(fill(7 + i, 0));
    }
    CHECK(cudaDeviceSynchronize());
    pass(socket, data, sizeof data, descriptor);
    // What was released here is the other's alone.
    CHECK_DRIVER(unmap(address, PIECE));
    CHECK_DRIVER(release(handle));
    pass(socket, "letgo!", 6, -1);
    take(socket, word, 6);
    values = static_cast<int *>(blocks[1]);
    std::printf("the pool's block: %s\n", check(9, 0).c_str());
    for (void *block : blocks) CHECK(cudaFreeAsync(block, 0));
    CHECK(cudaMemPoolDestroy(pool));
    CHECK_DRIVER(release(closed));
    return 0;
}

static int importer(int socket) {
    CHECK(cudaFree(nullptr));
    auto release = driver<CUresult (*)(CUmemGenericAllocationHandle)>("cuMemRelease");
    auto unmap = driver<CUresult (*)(CUdeviceptr, size_t)>("cuMemUnmap");
    auto receive = driver<CUresult (*)(CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType)>("cuMemImportFromShareableHandle");
    char word[6];
    const int descriptor = take(socket, word, 6);
    CUmemGenericAllocationHandle handle, twice;
    void *as_pointer = reinterpret_cast<void *>(static_cast<uintptr_t>(descriptor));
    CHECK_DRIVER(receive(&handle, as_pointer, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CHECK_DRIVER(receive(&twice, as_pointer, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CHECK_DRIVER(release(twice));
    CUresult other = receive(&twice, reinterpret_cast<void *>(static_cast<uintptr_t>(socket)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    std::printf("some other descriptor: %s\n", name_of(other));
    close(descriptor);
    const CUdeviceptr address = map(handle);
    values = reinterpret_cast<int *>(address);
    count = PIECE / sizeof(int);
    std::printf("what came: %s\n", check(5, 0).c_str());
    CHECK(fill(6, 0));
    CHECK(cudaDeviceSynchronize());
    pass(socket, "filled", 6, -1);
    cudaMemPoolPtrExportData data[2];
    const int of_pool = take(socket, data, sizeof data);
    cudaMemPool_t pool;
    CHECK(cudaMemPoolImportFromShareableHandle(&pool, reinterpret_cast<void *>(static_cast<uintptr_t>(of_pool)), cudaMemHandleTypePosixFileDescriptor, 0));
    close(of_pool);
    take(socket, word, 6);
    std::printf("after its owner let go: %s\n", check(6, 0).c_str());
    void *blocks[2];
    for (int i = 0; i < 2; ++i) CHECK(cudaMemPoolImportPointer(&blocks[i], pool, &data[i]));
    count = 1024;
    for (int i = 0; i < 2; ++i) {
        values = static_cast<int *>(blocks[i]);
        std::printf("block %d: %s\n", i, check(7 + i, 0).c_str());
    }
    CHECK(fill(9, 0));
    void *none;
    cudaError_t refused = cudaMallocFromPoolAsync(&none, 64, pool, 0);
    cudaGetLastError();
    std::printf("memory from it: %s\n", cudaGetErrorName(refused));
    for (void *block : blocks) CHECK(cudaFreeAsync(block, 0));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemPoolDestroy(pool));
    CHECK_DRIVER(unmap(address, PIECE));
    CHECK_DRIVER(release(handle));
    std::fflush(stdout);
    pass(socket, "done!!", 6, -1);
    return 0;
}

// What is kept by a descriptor alone.
static int lingering() {
    auto create = driver<CUresult (*)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long)>("cuMemCreate");
    auto release = driver<CUresult (*)(CUmemGenericAllocationHandle)>("cuMemRelease");
    auto unmap = driver<CUresult (*)(CUdeviceptr, size_t)>("cuMemUnmap");
    auto give = driver<CUresult (*)(void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long)>("cuMemExportToShareableHandle");
    auto receive = driver<CUresult (*)(CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType)>("cuMemImportFromShareableHandle");
    CHECK(cudaFree(nullptr));
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle;
    int descriptor = -1;
    count = PIECE / sizeof(int);
    // One more each time, with 64 MB in all: what no descriptor keeps goes.
    for (int round = 0; round < 40; ++round) {
        CHECK_DRIVER(create(&handle, PIECE, &properties, 0));
        CHECK_DRIVER(give(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        CUdeviceptr address = map(handle);
        values = reinterpret_cast<int *>(address);
        CHECK(fill(round, 0));
        CHECK(cudaDeviceSynchronize());
        CHECK_DRIVER(unmap(address, PIECE));
        CHECK_DRIVER(release(handle));
        const int copy = dup(descriptor);
        close(descriptor);
        CHECK_DRIVER(receive(&handle, reinterpret_cast<void *>(static_cast<uintptr_t>(copy)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        address = map(handle);
        values = reinterpret_cast<int *>(address);
        const std::string found = check(round, 0);
        if (found != "right" || round == 39) std::printf("what was there: %s\n", found.c_str());
        CHECK_DRIVER(unmap(address, PIECE));
        // Either goes last.
        if (round % 2) close(copy);
        CHECK_DRIVER(release(handle));
        if (round % 2 == 0) close(copy);
    }
    // Kept by their descriptors: there is no room for so many.
    int kept = 0;
    CUresult result = CUDA_SUCCESS;
    for (; kept < 40 && result == CUDA_SUCCESS; ++kept) {
        result = create(&handle, PIECE, &properties, 0);
        if (result != CUDA_SUCCESS) break;
        CHECK_DRIVER(give(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        CHECK_DRIVER(release(handle));
    }
    std::printf("kept by their descriptors: %s\n", kept < 20 ? name_of(result) : "FAIL");
    return 0;
}

static int descriptors(char **arguments) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return 2;
    const pid_t child = fork();
    if (child == 0) {
        const std::string number = std::to_string(pair[1]);
        execl("/proc/self/exe", arguments[0], "importer", number.c_str(), nullptr);
        _exit(5);
    }
    close(pair[1]);
    const int mine = exporter(pair[0]);
    int status = 0;
    waitpid(child, &status, 0);
    std::printf("ended: %d %d\n", mine, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return mine;
}

int main(int argc, char **arguments) {
    if (argc > 1 && !std::strcmp(arguments[1], "lingering")) return lingering();
    if (argc > 1 && !std::strcmp(arguments[1], "descriptors")) return descriptors(arguments);
    if (argc > 2 && !std::strcmp(arguments[1], "importer")) return importer(std::atoi(arguments[2]));
    cudaStream_t streams[2];
    for (auto &one : streams) CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    cudaEvent_t event = nullptr;
    int *freed = nullptr;
    std::puts("ready");
    std::fflush(stdout);
    char line[256];
    for (int number = 1; std::fgets(line, sizeof line, stdin); ++number) {
        line[std::strcspn(line, "\n")] = 0;
        const std::string whole = line;
        const size_t space = whole.find(' ');
        const std::string what = whole.substr(0, space), argument = space == std::string::npos ? "" : whole.substr(space + 1);
        const int value = argument.empty() ? 0 : std::atoi(argument.c_str());
        cudaError_t error = cudaSuccess;
        std::string answer;
        if (what == "make" || what == "inner") {
            cudaIpcMemHandle_t handle;
            if (what == "make") {
                count = value;
                CHECK(cudaMalloc(&values, count * sizeof(int)));
                CHECK(fill(1, streams[0]));
                CHECK(cudaStreamSynchronize(streams[0]));
            }
            error = cudaIpcGetMemHandle(&handle, what == "inner" ? values + count / 2 : values);
            if (error == cudaSuccess) answer = hex(&handle, sizeof handle);
        } else if (what == "open" || what == "again") {
            cudaIpcMemHandle_t handle;
            unhex(argument, &handle, sizeof handle);
            void *opened = nullptr;
            error = cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess);
            if (error == cudaSuccess && what == "again") answer = opened == values ? "same" : "different";
            if (error == cudaSuccess && what == "open") {
                values = static_cast<int *>(opened);
                static auto range = driver<CUresult (*)(CUdeviceptr *, size_t *, CUdeviceptr)>("cuMemGetAddressRange");
                size_t bytes = 0;
                CHECK_DRIVER(range(nullptr, &bytes, reinterpret_cast<CUdeviceptr>(opened)));
                count = static_cast<int>(bytes / sizeof(int));
            }
        } else if (what == "close") {
            error = cudaIpcCloseMemHandle(values);
        } else if (what == "free") {
            freed = values;
            error = cudaFree(values);
        } else if (what == "fill") {
            error = fill(value, streams[0]);
            if (error == cudaSuccess) error = cudaStreamSynchronize(streams[0]);
        } else if (what == "check") {
            answer = check(value, streams[0]);
        } else if (what == "taken") {
            std::vector<void *> pieces(200);
            answer = "elsewhere";
            for (auto &piece : pieces) {
                CHECK(cudaMalloc(&piece, count * sizeof(int)));
                CHECK(cudaMemset(piece, 0xff, count * sizeof(int)));
                if (piece == freed) answer = "there";
            }
            for (auto &piece : pieces) CHECK(cudaFree(piece));
        } else if (what == "event") {
            cudaIpcEventHandle_t handle;
            error = cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming);
            if (error == cudaSuccess) error = cudaIpcGetEventHandle(&handle, event);
            if (error == cudaSuccess) answer = hex(&handle, sizeof handle);
        } else if (what == "attend") {
            cudaIpcEventHandle_t handle;
            unhex(argument, &handle, sizeof handle);
            error = cudaIpcOpenEventHandle(&event, handle);
        } else if (what == "later") {
            error = cudaLaunchHostFunc(streams[1], stop, nullptr);
            if (error == cudaSuccess) error = fill(value, streams[1]);
            if (error == cudaSuccess) error = cudaEventRecord(event, streams[1]);
        } else if (what == "go") {
            std::lock_guard<std::mutex> lock(mutex);
            ++let_go;
            changed.notify_all();
        } else if (what == "query") {
            error = cudaEventQuery(event);
        } else if (what == "wait") {
            error = cudaEventSynchronize(event);
        } else if (what == "copy") {
            error = cudaStreamWaitEvent(streams[0], event, 0);
            if (error == cudaSuccess) answer = check(value, streams[0]);
        } else {
            answer = "not known";
        }
        if (answer.empty()) answer = cudaGetErrorName(error);
        cudaGetLastError();
        std::printf("%d: %s\n", number, answer.c_str());
        std::fflush(stdout);
    }
    return 0;
}
