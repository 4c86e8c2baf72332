// Without emm: the exported memory of a CUDA memory pool, after its process was killed.
//
//     killed-exporter ROUNDS DEVICE
//
// In each round a process exports memory of device 0. Another process opens it for DEVICE and reads
// it, kills the first process, and reads again. Each round has two new processes, because error 226
// leaves a process without its contexts. Prints the number of failed rounds; exits with 1 if any
// failed.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr size_t size = 1 << 20;
constexpr unsigned char pattern = 7;

void need(CUresult result, const char *call) {
    if (result != CUDA_SUCCESS) {
        std::printf("%s: CUDA error %d\n", call, int(result));
        std::fflush(stdout);
        std::_Exit(1);
    }
}
#define NEED(call) need(call, #call)

struct Message {
    int descriptor = -1; // goes beside the rest
    CUmemPoolPtrExportData data = {};
};

msghdr header_for(iovec &part, char *control, size_t control_size) {
    msghdr header = {};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = control_size;
    return header;
}

bool send(int socket, Message &message) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof message.descriptor)] = {};
    iovec part = {&message.data, sizeof message.data};
    const msghdr header = header_for(part, control, sizeof control);
    cmsghdr *const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof message.descriptor);
    std::memcpy(CMSG_DATA(rights), &message.descriptor, sizeof message.descriptor);
    return sendmsg(socket, &header, 0) > 0;
}

bool receive(int socket, Message &message) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof message.descriptor)] = {};
    iovec part = {&message.data, sizeof message.data};
    msghdr header = header_for(part, control, sizeof control);
    const bool good = recvmsg(socket, &header, 0) > 0 && CMSG_FIRSTHDR(&header);
    if (good) {
        std::memcpy(&message.descriptor, CMSG_DATA(CMSG_FIRSTHDR(&header)),
                    sizeof message.descriptor);
    }
    return good;
}

void enter(CUdevice device) {
    CUcontext context = nullptr;
    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&context, device));
    NEED(cuCtxSetCurrent(context));
}

void export_until_killed(int socket) {
    enter(0);
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemoryPool pool = nullptr;
    CUdeviceptr ptr = 0;
    Message message;
    NEED(cuMemPoolCreate(&pool, &properties));
    NEED(cuMemAllocFromPoolAsync(&ptr, size, pool, nullptr));
    NEED(cuMemsetD8(ptr, pattern, size));
    NEED(cuCtxSynchronize());
    NEED(cuMemPoolExportToShareableHandle(&message.descriptor, pool,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    NEED(cuMemPoolExportPointer(&message.data, ptr));
    if (send(socket, message)) {
        pause();
    }
}

CUdeviceptr open_for(CUdevice device, Message &message) {
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUmemoryPool pool = nullptr;
    CUdeviceptr ptr = 0;
    NEED(cuMemPoolImportFromShareableHandle(&pool,
                                            reinterpret_cast<void *>(intptr_t(message.descriptor)),
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    NEED(cuMemPoolSetAccess(pool, &access, 1));
    NEED(cuMemPoolImportPointer(&ptr, pool, &message.data));
    return ptr;
}

void read(CUdeviceptr ptr) {
    std::vector<unsigned char> copy(size);
    NEED(cuMemcpyDtoH(copy.data(), ptr, size));
    if (copy != std::vector<unsigned char>(size, pattern)) {
        std::puts("other bytes than were written");
        std::fflush(stdout);
        std::_Exit(1);
    }
}

// Runs in a process of its own, which has not called CUDA yet.
void play_round(CUdevice device) {
    int ends[2];
    Message message;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
        std::_Exit(1);
    }
    const pid_t exporter = fork();
    if (exporter == 0) {
        export_until_killed(ends[1]);
        std::_Exit(1);
    }
    close(ends[1]);
    enter(device);
    if (!receive(ends[0], message)) {
        std::_Exit(1);
    }
    const CUdeviceptr ptr = open_for(device, message);
    read(ptr);
    kill(exporter, SIGKILL);
    waitpid(exporter, nullptr, 0);
    for (int i = 0; i < 100; i++) {
        read(ptr);
        usleep(100);
    }
    std::_Exit(0);
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: killed-exporter ROUNDS DEVICE\n");
        return 2;
    }
    const int rounds = std::atoi(argv[1]), device = std::atoi(argv[2]);
    int failed = 0;
    for (int round = 0; round < rounds; round++) {
        const pid_t importer = fork();
        if (importer == 0) {
            play_round(device);
        }
        int status = 0;
        waitpid(importer, &status, 0);
        failed += status != 0;
    }
    std::printf("device %d: %d of %d rounds failed\n", device, failed, rounds);
    return failed != 0;
}
