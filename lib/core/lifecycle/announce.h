#pragma once

#include <emm/emm.h>

// What an application announces: streams, captures, sections in which nothing is given back.

namespace emm::core {

emm_status register_stream(emm_context &context, emm_stream stream) noexcept;
emm_status retire_stream(emm_context &context, emm_stream stream) noexcept;
emm_status begin_capture(emm_context &context, emm_stream stream) noexcept;
emm_status end_capture(emm_context &context, emm_stream stream) noexcept;
emm_status begin_section(emm_context &context, const void *caller) noexcept;
emm_status end_section(emm_context &context, const void *caller) noexcept;

// emm_set_peer_access. What no plugin could do is refused here, so that each need not say it.
emm_status set_peer_access(emm_context &context, int32_t peer_device, uint32_t flags);

} // namespace emm::core
