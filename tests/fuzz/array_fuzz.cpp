// Any array is either refused in a sentence, or spans the bytes that its elements reach. The input
// is numbers for the struct, then the typestr.
#include "../parts/sized.h"
#include "core/arrays/exchange.h"
#include "file.h"
#include "observe/error.h"

#include <cstring>
#include <emm/array.h>
#include <vector>

using namespace emm;

namespace {

class Numbers {
public:
    Numbers(const uint8_t *data, size_t size) : data_(data), size_(size) {}
    uint8_t byte() { return size_ ? size_--, *data_++ : uint8_t(0); }
    // Small ones, mostly, and each edge.
    int64_t number() {
        const uint8_t kind = byte();
        int64_t wide = 0;
        if (kind % 4 == 0) {
            for (int i = 0; i < 8; i++) {
                wide = int64_t(uint64_t(wide) << 8 | byte());
            }
            return wide;
        }
        return kind % 4 == 1 ? -int64_t(byte()) : int64_t(byte());
    }
    std::string rest(size_t most) {
        std::string text;
        while (size_ && text.size() < most && *data_ != 0) {
            text += char(byte());
        }
        byte();
        return text;
    }

private:
    const uint8_t *data_;
    size_t size_;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Numbers numbers(data, size);
    auto array = sized<emm_array>();
    array.version = 2 + numbers.byte() % 3;
    array.data = emm_deviceptr(numbers.number());
    array.read_only = numbers.byte() % 3;
    array.ndim = numbers.byte() % (EMM_ARRAY_MAX_DIMENSIONS + 2);
    std::vector<int64_t> shape(array.ndim), strides(array.ndim);
    for (uint32_t i = 0; i < array.ndim; i++) {
        shape[i] = numbers.number();
        strides[i] = numbers.number();
    }
    array.shape = shape.data();
    array.strides = numbers.byte() % 2 ? strides.data() : nullptr;
    const std::string typestr = numbers.rest(32);
    array.typestr = typestr.c_str();
    emm_array_field fields[3] = {};
    std::string names[3], types[3];
    array.descr_count = numbers.byte() % 4;
    for (uint32_t i = 0; i < array.descr_count; i++) {
        names[i] = numbers.rest(8);
        types[i] = numbers.rest(8);
        fields[i].name = names[i].c_str();
        fields[i].typestr = types[i].c_str();
        fields[i].ndim = i ? 0 : numbers.byte() % 2;
        fields[i].shape = shape.data();
    }
    if (fields[0].ndim > array.ndim) {
        fields[0].ndim = 0;
    }
    array.descr = array.descr_count ? fields : nullptr;
    array.stream = EMM_ARRAY_NO_STREAM;

    auto layout = sized<emm_array_layout>();
    std::vector<int64_t> measured(array.ndim + 1);
    if (emm_array_get_layout(&array, &layout, measured.data()) < 0) {
        require_sentence(observe::last_error()->text);
        return 0;
    }
    require(layout.size == 0 || layout.offset < layout.size,
            "the first element lies within the array");
    require(layout.count == 0 || layout.size >= layout.itemsize,
            "the array has room for an element");
    auto info = sized<emm_memory_info>();
    info.ptr = array.data - layout.offset;
    info.size = layout.size;
    core::Tensor tensor;
    if (core::describe(info, layout.offset, array, nullptr, tensor) == EMM_OK) {
        require(tensor.tensor.ndim == int32_t(array.ndim), "a tensor has the array's dimensions");
    }
    return 0;
}
