// An importer gets only parts of the one export whose secret it knows, in their order and at most
// as many as it asked for; otherwise it gets a status and no descriptor. A request for the handle
// needs its whole name. The first byte says what of all this the importer knows.
#include "core/record/context.h"
#include "fuzz.h"
#include "sharing/exporter/exporter.h"
#include "sharing/handle/stamp.h"
#include "sharing/handle/wire.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <vector>

using namespace emm;

namespace {

constexpr uint64_t part_count = 100, part_bytes = 4096, context_id = 1;

// The driver of the exporter: it has one context, and a descriptor for each part.
CUresult CUDAAPI get_id(CUcontext, unsigned long long *ret_id) {
    *ret_id = context_id;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI push(CUcontext) {
    return CUDA_SUCCESS;
}
CUresult CUDAAPI pop(CUcontext *) {
    return CUDA_SUCCESS;
}
CUresult CUDAAPI export_part(void *ret_descriptor, CUmemGenericAllocationHandle,
                             CUmemAllocationHandleType, unsigned long long) {
    *static_cast<int *>(ret_descriptor) = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return CUDA_SUCCESS;
}
CUresult CUDAAPI refuse() {
    return CUDA_ERROR_NOT_SUPPORTED;
}

emm_function find(const char *name, int32_t) {
    const std::string_view wanted = name;
    return wanted == "cuCtxGetId"                     ? reinterpret_cast<emm_function>(get_id)
           : wanted == "cuCtxPushCurrent"             ? reinterpret_cast<emm_function>(push)
           : wanted == "cuCtxPopCurrent"              ? reinterpret_cast<emm_function>(pop)
           : wanted == "cuMemExportToShareableHandle" ? reinterpret_cast<emm_function>(export_part)
                                                      : reinterpret_cast<emm_function>(refuse);
}

// A context with one export, by a plugin that has served it.
struct Exporter {
    Exporter() {
        plugin.table.get_ipc_handle = [](emm_manager *self, emm_deviceptr, size_t size,
                                         emm_ipc_handle *ret_handle) {
            const std::vector<emm_ipc_part> parts(part_count, {1, part_bytes});
            const emm_ipc_source source = {
                sizeof source, EMM_IPC_FILE_DESCRIPTOR, parts.data(), part_count, 0, size, nullptr};
            return sharing::serve_export(reinterpret_cast<Exporter *>(self)->context, source,
                                         ret_handle);
        };
        selection.plugin = &plugin;
        context.selection = &selection;
        context.managers.selves.fill(reinterpret_cast<emm_manager *>(this));
        require(sharing::get_handle(context, nullptr, 4096, part_bytes, &handle) == EMM_OK,
                "there is an export");
        require(sharing::get_nonce(nonce) == EMM_OK, "the process has a nonce");
    }
    const driver::Driver driver{find};
    loader::Plugin plugin;
    loader::Selection selection;
    emm_context context{driver, reinterpret_cast<CUcontext>(1), context_id, {}};
    emm_ipc_handle handle = {};
    uint8_t nonce[8];
};

void ask_for_parts(const sharing::Request &request, const Exporter &exporter) {
    const sharing::ServedReply batch(request);
    const sharing::Reply &reply = batch.reply();
    const bool knows =
        std::memcmp(request.nonce, exporter.nonce, sizeof exporter.nonce) == 0 &&
        request.generation == exporter.handle.generation &&
        std::memcmp(request.handle, exporter.handle.handle, sizeof request.handle) == 0;
    require(reply.magic == sharing::wire_magic, "each request has a reply");
    require((reply.count > 0) == (knows && request.first < part_count),
            "parts are for those that know the secret");
    require(reply.count <= std::min(std::max(request.most, 1u), sharing::parts_at_once),
            "there are no more of them than were asked for");
    require((reply.status == EMM_OK) == (reply.count > 0), "a status says why there are none");
    require(reply.count == 0 ||
                (reply.total == part_count && request.first + reply.count <= part_count),
            "they lie within the export");
    for (uint32_t i = 0; i < reply.count; ++i) {
        require(reply.sizes[i] == part_bytes &&
                    fcntl(batch.descriptors()[i], F_GETFD) == FD_CLOEXEC,
                "each has its size and a descriptor that stays in this process");
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const auto *const exporter = new Exporter;
    if (size == 0) {
        return 0;
    }
    const uint8_t known = *data++;
    std::vector<uint8_t> message(data, data + size - 1);
    const auto know = [&](unsigned bit, size_t at, const void *bytes, size_t count) {
        if ((known >> bit & 1) != 0 && at + count <= message.size()) {
            std::memcpy(message.data() + at, bytes, count);
        }
    };
    know(0, 0, &sharing::wire_magic, sizeof sharing::wire_magic);
    know(1, offsetof(sharing::Request, nonce), exporter->nonce, sizeof exporter->nonce);
    know(2, offsetof(sharing::Request, generation), &exporter->handle.generation,
         sizeof exporter->handle.generation);
    know(3, offsetof(sharing::Request, handle), exporter->handle.handle,
         sizeof exporter->handle.handle);
    const emm_ipc_name name = sharing::write_name(exporter->handle);
    know(4, 0, &sharing::handle_magic, sizeof sharing::handle_magic);
    // The whole request, or the part before the proof.
    know(5, offsetof(sharing::HandleRequest, name), &name, sizeof name);
    know(6, offsetof(sharing::HandleRequest, name), &name, 24);
    switch (sharing::what_is_asked(message.data(), static_cast<long>(message.size()))) {
    case sharing::Asked::parts: {
        sharing::Request request;
        require(message.size() == sizeof request, "a request for parts has their size");
        std::memcpy(&request, message.data(), sizeof request);
        ask_for_parts(request, *exporter);
        break;
    }
    case sharing::Asked::handle: {
        sharing::HandleRequest request;
        emm_ipc_handle handle = {};
        require(message.size() == sizeof request, "a request for a handle has its size");
        std::memcpy(&request, message.data(), sizeof request);
        const bool knows = std::memcmp(&request.name, &name, sizeof name) == 0;
        require(sharing::find_export(request.name, &handle) == knows,
                "a handle is for those that know its whole name");
        require(!knows || std::memcmp(&handle, &exporter->handle, sizeof handle) == 0,
                "it is the one that was named");
        break;
    }
    case sharing::Asked::nothing:
        break;
    }
    return 0;
}
