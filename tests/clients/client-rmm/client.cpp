// RMM's containers in device memory of emm, by emm.hpp and by libemm-bridge, and RMM's adaptors
// over it. No bytes are copied: RMM's CUDA runtime refuses the simulated driver.
#include "bridge.h"

#include <emm/emm.hpp>

#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/callback_memory_resource.hpp>
#include <rmm/mr/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/version_config.hpp>

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <exception>
#include <string>

namespace {

using Resource = emm::DeviceResource<cuda::mr::device_accessible>;

static_assert(cuda::mr::resource_with<Resource, cuda::mr::device_accessible>);
static_assert(std::is_constructible_v<rmm::device_async_resource_ref, Resource &>);
static_assert(
    std::is_constructible_v<cuda::mr::any_resource<cuda::mr::device_accessible>, Resource>);

// Assumptions of libemm-bridge where it calls RMM without these headers.
static_assert(sizeof(cuda::stream_ref) == sizeof(emm_stream));
static_assert(std::is_trivially_copyable_v<cuda::stream_ref>);
static_assert(sizeof(rmm::out_of_memory) <= 256 && sizeof(rmm::bad_alloc) <= 256);

constexpr size_t too_much = size_t(1) << 50;

void expect(bool holds, const char *sentence) {
    if (!holds) {
        std::printf("not so: %s\n", sentence);
        std::exit(1);
    }
}

emm_stats stats(emm_context *gpu) {
    emm_stats stats = {};
    stats.struct_size = sizeof stats;
    emm::check(emm_get_stats(gpu, &stats));
    return stats;
}

// A driver call that must succeed.
template <class... Arguments> void call(const char *name, Arguments... arguments) {
    const auto entry = reinterpret_cast<int (*)(Arguments...)>(emm_driver_entry(name, 12000));
    expect(entry && entry(arguments...) == 0, name);
}

void make_current(emm_context *gpu) {
    emm_context_info info = {};
    info.struct_size = sizeof info;
    emm::check(emm_context_get_info(gpu, &info));
    call("cuCtxSetCurrent", info.cuda_context);
}

emm_stream make_stream() {
    emm_stream stream = nullptr;
    call("cuStreamCreate", &stream, 0u);
    return stream;
}

// The stream of the last allocation or free.
emm_stream last_stream;

void note_stream(const emm_event *event, void *) {
    last_stream = event->stream;
}

void containers_hold_its_memory(emm_context *gpu, cuda::stream_ref stream) {
    Resource memory(gpu);
    {
        const rmm::device_buffer buffer(1000, stream, memory);
        const rmm::device_uvector<int> numbers(100, stream, memory);
        expect(stats(gpu).live_bytes == 1400, "a buffer and a vector are of emm's memory");
        expect(reinterpret_cast<uintptr_t>(numbers.data()) % 256 == 0,
               "a vector is aligned to 256 bytes");
    }
    expect(stats(gpu).live_bytes == 0, "containers give their memory back");
}

void streams_are_those_of_the_container(emm_context *gpu) {
    Resource memory(gpu);
    const emm_stream first = make_stream(), second = make_stream();
    emm::check(emm_set_event_hook(note_stream, nullptr, nullptr));
    {
        rmm::device_buffer buffer(1000, cuda::stream_ref(first), memory);
        expect(last_stream == first, "a buffer is allocated on its stream");
        call("cuStreamSynchronize", first);
        buffer.set_stream(cuda::stream_ref(second));
    }
    expect(last_stream == second, "a buffer is freed on the stream that it was given last");
    emm::check(emm_set_event_hook(nullptr, nullptr, nullptr));
}

void the_current_resource_can_be_emm(emm_context *gpu, cuda::stream_ref stream) {
    const auto before = rmm::mr::set_current_device_resource(Resource(gpu));
    {
        const rmm::device_buffer buffer(1000, stream);
        expect(stats(gpu).live_bytes == 1000, "what names no resource has emm's memory");
    }
    rmm::mr::set_current_device_resource(before);
}

void out_of_memory_is_emms_and_adaptors_can_act_on_it(emm_context *gpu, cuda::stream_ref stream) {
    int asked = 0;
    const auto give_up = [](size_t, void *count) { return ++*static_cast<int *>(count) < 3; };
    rmm::mr::failure_callback_resource_adaptor<emm::OutOfMemory> adaptor(Resource(gpu), give_up,
                                                                         &asked);
    try {
        rmm::device_buffer(too_much, stream, adaptor);
        expect(false, "more than the device has is refused");
    } catch (const std::bad_alloc &error) {
        expect(std::string(error.what()) == emm_last_error()->text, "a refusal has emm's words");
    }
    expect(asked == 3, "RMM's adaptor asks its callback at each refusal of emm's");
}

void adaptors_count_above_it(emm_context *gpu, cuda::stream_ref stream) {
    rmm::mr::statistics_resource_adaptor counting{Resource(gpu)};
    const rmm::device_buffer buffer(1000, stream, counting);
    expect(counting.get_bytes_counter().value == int64_t(stats(gpu).live_bytes),
           "RMM counts above emm what emm counts");
}

void the_bridge_serves_a_callback_resource(emm_context *gpu, cuda::stream_ref stream) {
    void *const librmm = dlopen("librmm.so", RTLD_NOW | RTLD_NOLOAD);
    rmm::mr::callback_memory_resource memory(nullptr, nullptr);
    expect(emm_rmm_serve(&memory, gpu, librmm, RMM_VERSION_MAJOR, RMM_VERSION_MINOR) == EMM_OK,
           "libemm-bridge finds all that it needs in librmm");
    {
        const rmm::device_buffer buffer(1000, stream, memory);
        expect(stats(gpu).live_bytes == 1000, "a callback resource has emm's memory");
    }
    expect(stats(gpu).live_bytes == 0, "a callback resource gives its memory back");
    try {
        rmm::device_buffer(too_much, stream, memory);
        expect(false, "a callback resource refuses more than the device has");
    } catch (const rmm::out_of_memory &error) {
        expect(std::string(error.what()).ends_with(emm_last_error()->text),
               "RMM's exception has emm's words");
    }
    expect(std::uncaught_exceptions() == 0, "an exception is caught where it was thrown");
}

void another_version_of_rmm_is_not_served(emm_context *gpu) {
    void *const librmm = dlopen("librmm.so", RTLD_NOW | RTLD_NOLOAD);
    rmm::mr::callback_memory_resource memory(nullptr, nullptr);
    expect(emm_rmm_serve(&memory, gpu, librmm, 1, 0) == EMM_E_NOT_SUPPORTED,
           "an RMM of another version than it says is refused");
}

} // namespace

int main() {
    emm_context *const gpu = emm::context_for_device(0);
    const cuda::stream_ref stream(cudaStream_t{nullptr});
    make_current(gpu);
    containers_hold_its_memory(gpu, stream);
    streams_are_those_of_the_container(gpu);
    the_current_resource_can_be_emm(gpu, stream);
    out_of_memory_is_emms_and_adaptors_can_act_on_it(gpu, stream);
    adaptors_count_above_it(gpu, stream);
    the_bridge_serves_a_callback_resource(gpu, stream);
    another_version_of_rmm_is_not_served(gpu);
    std::puts("done");
    return 0;
}
