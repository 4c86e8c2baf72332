// The other process of the IPC tests: ipc-peer SOCKET.
#include "ipc_message.h"

#include "driver_table.h"

#include <cstdlib>
#include <unistd.h>

namespace {

void *as_handle(int descriptor) {
    return reinterpret_cast<void *>(static_cast<intptr_t>(descriptor));
}

void exchange(CUdeviceptr address, const Request &request, Reply &reply) {
    cu().cuMemcpyDtoH(&reply.read, address + request.offset, 1);
    cu().cuMemsetD8(address + request.offset, request.write, 1);
    cu().cuCtxSynchronize();
}

void open_legacy(const Request &request, Reply &reply) {
    CUdeviceptr address = 0, again = 0;
    const unsigned flags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
    reply.first = cu().cuIpcOpenMemHandle(&address, request.handle, flags);
    if (reply.first != CUDA_SUCCESS) {
        return;
    }
    reply.again = cu().cuIpcOpenMemHandle(&again, request.handle, flags);
    reply.same_address = again == address;
    exchange(address, request, reply);
    cu().cuIpcCloseMemHandle(address);
    cu().cuIpcCloseMemHandle(address);
}

void open_in_two_contexts(const Request &request, Reply &reply) {
    CUdeviceptr address = 0, again = 0;
    CUcontext other = nullptr;
    const unsigned flags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
    reply.first = cu().cuIpcOpenMemHandle(&address, request.handle, flags);
    cu().create_context(&other, 0, 0);
    reply.again = cu().cuIpcOpenMemHandle(&again, request.handle, flags);
    reply.same_address = again == address;
    cu().cuCtxDestroy(other);
    cu().cuIpcCloseMemHandle(address);
}

void open_descriptor(const Request &request, int descriptor, Reply &reply) {
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    reply.first = cu().cuMemImportFromShareableHandle(&handle, as_handle(descriptor),
                                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(descriptor);
    if (reply.first != CUDA_SUCCESS ||
        cu().cuMemAddressReserve(&address, request.size, 0, 0, 0) != CUDA_SUCCESS) {
        return;
    }
    reply.again = cu().cuMemMap(address, request.size, 0, handle, 0);
    cu().cuMemSetAccess(address, request.size, &access, 1);
    exchange(address, request, reply);
    cu().cuMemUnmap(address, request.size);
    cu().cuMemRelease(handle);
    cu().cuMemAddressFree(address, request.size);
}

void open_pool(const Request &request, int descriptor, Reply &reply) {
    CUmemoryPool pool = nullptr, same = nullptr;
    CUdeviceptr address = 0, again = 0;
    CUmemPoolPtrExportData pointer = request.pointer;
    for (CUmemoryPool *const each : {&pool, &same}) {
        reply.first = cu().cuMemPoolImportFromShareableHandle(
            each, as_handle(descriptor), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    }
    close(descriptor);
    if (reply.first != CUDA_SUCCESS) {
        return;
    }
    reply.same_pool = same == pool;
    reply.again = cu().cuMemPoolImportPointer(&address, pool, &pointer);
    if (reply.again == CUDA_SUCCESS) {
        cu().cuMemPoolImportPointer(&again, pool, &pointer);
        reply.same_address = again == address;
        exchange(address, request, reply);
        reply.early = cu().cuMemPoolDestroy(pool);
        cu().cuMemFree(address);
    }
    reply.destroyed = cu().cuMemPoolDestroy(pool);
}

} // namespace

int main(int argc, char *argv[]) {
    const int socket = argc == 2 ? std::atoi(argv[1]) : -1;
    CUcontext context = nullptr;
    if (cu().cuInit(0) != CUDA_SUCCESS ||
        cu().cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cu().cuCtxPushCurrent(context) != CUDA_SUCCESS) {
        return 1;
    }
    Request request;
    for (int descriptor; receive_message(socket, request, descriptor);) {
        Reply reply;
        switch (request.what) {
        case 'l':
            open_legacy(request, reply);
            break;
        case 'c':
            open_in_two_contexts(request, reply);
            break;
        case 'd':
            open_descriptor(request, descriptor, reply);
            break;
        case 'p':
            open_pool(request, descriptor, reply);
            break;
        default:
            return 1;
        }
        if (!send_message(socket, reply, -1)) {
            return 1;
        }
    }
    return 0;
}
