// The pool's entry: a table made from the manager's member functions.
#include "manager.h"

namespace {

const emm_plugin table = emm::make_plugin<emm::pool::Manager>(
    "pool", EMM_VERSION, "Caches device memory and hands it out again in stream order",
    EMM_PLUGIN_STREAM_ORDERED | EMM_PLUGIN_CACHES | EMM_PLUGIN_CAPTURE, emm::pool::option_list);

} // namespace

EMM_PLUGIN_ENTRY(const emm_host *) {
    return &table;
}
