// emm itself, with the plugin that EMM_PLUGIN names.
#include "bench/memory.h"
#include "peer.h"

namespace emm::peers {
namespace {

struct Plugin {
    using Memory = tool::PluginMemory;

    Plugin(const std::string &, Driver &, Purpose) {
        tool::expect(emm_context_for_device(0, &context));
    }
    Memory on(CUstream stream) const {
        tool::expect(emm_stream_register(context, stream));
        return {context, stream};
    }

    emm_context *context = nullptr;
};

} // namespace
} // namespace emm::peers

int main(int count, char **arguments) {
    return emm::peers::run_peer<emm::peers::Plugin>(count, arguments, emm_driver_entry);
}
