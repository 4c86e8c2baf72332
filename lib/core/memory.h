#pragma once

#include <emm/emm.h>

// The raw memory calls of emm.h, with arguments that have been checked.
namespace emm::core {

emm_status memalloc(emm_context &context, size_t size, emm_stream stream,
                    emm_deviceptr *ret_ptr) noexcept;
emm_status memfree(emm_context &context, emm_deviceptr ptr, size_t size,
                   emm_stream stream) noexcept;
emm_status memhostalloc(emm_context &context, size_t size, uint32_t flags, void **ret_host,
                        emm_deviceptr *ret_device) noexcept;
emm_status memhostfree(emm_context &context, void *host, size_t size, uint32_t flags,
                       emm_stream stream) noexcept;
emm_status mempin(emm_context &context, void *host, size_t size, uint32_t flags,
                  emm_deviceptr *ret_device) noexcept;
emm_status memunpin(emm_context &context, void *host, size_t size) noexcept;
emm_status memallocmanaged(emm_context &context, size_t size, uint32_t flags,
                           emm_deviceptr *ret_ptr) noexcept;
emm_status memfreemanaged(emm_context &context, emm_deviceptr ptr, size_t size,
                          emm_stream stream) noexcept;
emm_status trim(emm_context &context, size_t keep_bytes, size_t *ret_released) noexcept;
emm_status get_stats(emm_context &context, emm_stats *ret_stats) noexcept;

} // namespace emm::core
