/* The rules of the CUDA Array Interface, each broken once. */
#include "check.h"

static const int64_t two_by_three[] = {2, 3};

static emm_array floats(void) {
    emm_array array;
    memset(&array, 0, sizeof array);
    array.struct_size = sizeof array;
    array.version = 3;
    array.data = 0x10000;
    array.ndim = 2;
    array.shape = two_by_three;
    array.typestr = "<f4";
    array.stream = EMM_ARRAY_NO_STREAM;
    return array;
}

static emm_array typed(const char *typestr) {
    emm_array array = floats();
    array.typestr = typestr;
    return array;
}

static emm_array strided(const int64_t *strides) {
    emm_array array = floats();
    array.strides = strides;
    return array;
}

static emm_array_layout layout_of(const emm_array *array, int64_t *strides) {
    emm_array_layout layout;
    memset(&layout, 0, sizeof layout);
    layout.struct_size = sizeof layout;
    CHECK(emm_array_get_layout(array, &layout, strides) == EMM_OK);
    return layout;
}

#define CHECK_BROKEN(array, words)                                                                 \
    CHECK_REFUSED(emm_array_validate(&(array)), EMM_E_INVALID_VALUE, words)

static void without_strides(void) {
    const emm_array array = floats();
    int64_t strides[2] = {0, 0};
    const emm_array_layout layout = layout_of(&array, strides);
    CHECK(strides[0] == 12 && strides[1] == 4);
    CHECK(layout.flags == EMM_ARRAY_C_CONTIGUOUS);
    CHECK(layout.itemsize == 4 && layout.count == 6 && layout.size == 24 && layout.offset == 0);
}

static void versions(void) {
    emm_array array = floats();
    array.version = 2;
    CHECK(emm_array_validate(&array) == EMM_OK);
    array.version = 1;
    CHECK_BROKEN(array, "version: expected 2 or 3, found 1; versions 0 and 1 do not define");
    array.version = 0;
    CHECK_BROKEN(array, "version: expected 2 or 3, found 0; versions 0 and 1 do not define");
    array.version = 4;
    CHECK_BROKEN(array, "version: expected 2 or 3, found 4");
}

static void shapes(void) {
    static const int64_t negative[] = {2, -3}, huge[] = {INT64_MAX, 3}, none[] = {0, INT64_MAX};
    emm_array array = floats();
    array.shape = negative;
    CHECK_BROKEN(array, "shape[1]: expected 0 or more, found -3");
    array.shape = huge;
    CHECK_BROKEN(array, "shape (9223372036854775807, 3) with elements of 4 bytes is larger");
    array.shape = NULL;
    CHECK_BROKEN(array, "shape: expected 2 sizes, found NULL");
    array.ndim = 65;
    CHECK_BROKEN(array, "ndim: expected at most 64, found 65");
    array = floats();
    array.shape = none;
    array.data = 0;
    CHECK(emm_array_validate(&array) == EMM_OK);
}

static void scalars(void) {
    emm_array array = floats();
    array.ndim = 0;
    array.shape = NULL;
    const emm_array_layout layout = layout_of(&array, NULL);
    CHECK(layout.count == 1 && layout.size == 4);
    CHECK(layout.flags == (EMM_ARRAY_C_CONTIGUOUS | EMM_ARRAY_F_CONTIGUOUS));
}

static void typestrs(void) {
    static const struct {
        const char *text;
        uint64_t itemsize;
    } good[] = {{"<f4", 4}, {">c16", 16},   {"|b1", 1},       {"|u1", 1},
                {"<i8", 8}, {"|V3", 3},     {"|S12", 12},     {"<U3", 12},
                {"|t9", 2}, {"<M8[ns]", 8}, {"<m8[25us]", 8}, {"<f2", 2}};
    static const struct {
        const char *text, *words;
    } bad[] = {{NULL, "typestr is NULL"},
               {"", "expected a byte order"},
               {"f4", "expected a byte order"},
               {"=f4", "expected a byte order"},
               {"|f4", "expected a byte order, < or >"},
               {"<q4", "expected one of the type letters t b i u f c m M S U V, found 'q'"},
               {"|O", "objects of a host program"},
               {"<f3", "there is no kind 'f' of 3 bytes"},
               {"<f", "expected a number of bytes"},
               {"<fx", "expected a number of bytes"},
               {"<f4x", "expected nothing after the number, found \"x\""},
               {"<i8[ns]", "expected nothing after the number"},
               {"|V99999999999", "up to 2147483647"}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const emm_array array = typed(good[i].text);
        CHECK(layout_of(&array, NULL).itemsize == good[i].itemsize);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const emm_array array = typed(bad[i].text);
        CHECK_BROKEN(array, bad[i].words);
    }
}

static void empty_arrays(void) {
    static const int64_t empty[] = {2, 0};
    emm_array array = floats();
    array.shape = empty;
    CHECK_BROKEN(array, "data: expected 0 for an array of no bytes, found 0x10000");
    array.data = 0;
    const emm_array_layout layout = layout_of(&array, NULL);
    CHECK(layout.count == 0 && layout.size == 0);
    array.shape = two_by_three;
    CHECK_BROKEN(array, "data: expected the address of 24 bytes, found 0");
}

static void read_only_flags(void) {
    emm_array array = floats();
    array.read_only = 1;
    CHECK(emm_array_validate(&array) == EMM_OK);
    array.read_only = 2;
    CHECK_BROKEN(array, "read_only: expected 0 or 1, found 2");
}

static void given_strides(void) {
    static const int64_t fortran[] = {4, 8}, gaps[] = {64, 8}, broadcast[] = {0, 4};
    emm_array array = strided(fortran);
    CHECK(layout_of(&array, NULL).flags == EMM_ARRAY_F_CONTIGUOUS);
    array = strided(gaps);
    emm_array_layout layout = layout_of(&array, NULL);
    CHECK(layout.flags == 0 && layout.size == 64 + 2 * 8 + 4);
    array = strided(broadcast);
    layout = layout_of(&array, NULL);
    CHECK(layout.flags == 0 && layout.size == 12 && layout.count == 6);
}

static void negative_strides(void) {
    static const int64_t backwards[] = {-12, -4}, far[] = {-0x10000, 4};
    emm_array array = strided(backwards);
    int64_t strides[2] = {0, 0};
    const emm_array_layout layout = layout_of(&array, strides);
    CHECK(layout.flags == 0 && layout.size == 24 && layout.offset == 20);
    CHECK(strides[0] == -12 && strides[1] == -4);
    array = strided(far);
    CHECK(emm_array_validate(&array) == EMM_OK);
    array.data--;
    CHECK_BROKEN(array, "lead outside the address space");
}

static void strides_out_of_memory(void) {
    static const int64_t wide[] = {INT64_MAX, 4}, most[] = {INT64_MAX - 64, 4};
    emm_array array = strided(wide);
    CHECK_BROKEN(array, "and these strides is larger than all memory");
    array = strided(most);
    array.data = UINT64_MAX / 2 + 1024;
    CHECK_BROKEN(array, "lead outside the address space");
}

static void streams(void) {
    emm_array array = floats();
    array.stream = 0;
    CHECK_BROKEN(array, "stream: expected EMM_ARRAY_NO_STREAM, 1 (legacy), 2 (per thread)");
    array.version = 2;
    CHECK(emm_array_validate(&array) == EMM_OK);
    array.stream = EMM_ARRAY_STREAM_LEGACY;
    CHECK_BROKEN(array, "stream: expected none in version 2, found 0x1");
    array.version = 3;
    CHECK(emm_array_validate(&array) == EMM_OK);
    array.stream = EMM_ARRAY_STREAM_PER_THREAD;
    CHECK(emm_array_validate(&array) == EMM_OK);
}

static void masks(void) {
    static const int64_t row[] = {3}, column[] = {2, 1}, four[] = {4}, cube[] = {1, 2, 3};
    emm_array array = floats(), mask = typed("|b1");
    array.mask = &mask;
    CHECK(emm_array_validate(&array) == EMM_OK);
    mask.ndim = 1;
    mask.shape = row;
    CHECK(emm_array_validate(&array) == EMM_OK);
    mask.shape = four;
    CHECK_BROKEN(array, "mask: shape: expected one that broadcasts to (2, 3), found (4)");
    mask.ndim = 2;
    mask.shape = column;
    CHECK(emm_array_validate(&array) == EMM_OK);
    mask.ndim = 3;
    mask.shape = cube;
    CHECK_BROKEN(array, "found (1, 2, 3)");
    mask = typed("?");
    CHECK_BROKEN(array, "array, mask: typestr \"?\"");
    mask = typed("|b1");
    mask.mask = &array;
    CHECK_BROKEN(array, "a mask cannot have a mask");
}

static void descrs(void) {
    static const int64_t pair[] = {2};
    static const emm_array_field inner[] = {{"re", "<f4", NULL, 0, 0, NULL},
                                            {"im", "<f4", NULL, 0, 0, NULL}};
    emm_array_field fields[] = {{"id", "<u4", NULL, 0, 0, NULL},
                                {"", "|V4", NULL, 0, 0, NULL},
                                {"value", NULL, inner, 2, 1, pair}};
    emm_array array = typed("|V24");
    array.descr = fields;
    array.descr_count = 3;
    CHECK(emm_array_validate(&array) == EMM_OK);
    array.descr_count = 2;
    CHECK_BROKEN(array, "descr: expected the 24 bytes of typestr, found 8");
    fields[1].typestr = "V4";
    CHECK_BROKEN(array, "array, descr, field 1 \"\": typestr \"V4\": expected a byte order");
    fields[0].fields = inner;
    CHECK_BROKEN(array, "expected either a typestr or fields, found both");
    fields[0].name = NULL;
    CHECK_BROKEN(array, "descr, field 0: its name is NULL");
}

static void endless_descrs(void) {
    emm_array_field field = {"self", NULL, NULL, 1, 0, NULL};
    emm_array array = typed("|V8");
    field.fields = &field;
    array.descr = &field;
    array.descr_count = 1;
    CHECK_BROKEN(array, "expected fields at most 16 deep, found more");
}

/* 14 levels of 150 fields each, all of which have the next level's as their parts. */
static void shared_descrs(void) {
    static emm_array_field levels[14][150];
    emm_array array = typed("|V8");
    int level, i;
    for (level = 0; level < 14; ++level) {
        for (i = 0; i < 150; ++i) {
            const emm_array_field leaf = {"leaf", "|V0", NULL, 0, 0, NULL};
            const emm_array_field shared = {"shared", NULL, levels[(level + 1) % 14], 150, 0, NULL};
            levels[level][i] = level == 13 ? leaf : shared;
        }
    }
    array.descr = levels[0];
    array.descr_count = 150;
    CHECK_BROKEN(array, "expected at most 65536 fields in all, found more");
    array.descr = levels[12]; /* 150 * 151 of them */
    CHECK_BROKEN(array, "descr: expected the 8 bytes of typestr, found 0");
}

static void short_structs(void) {
    emm_array array = floats();
    array.struct_size = 8;
    CHECK_BROKEN(array, "struct_size: expected at least");
    CHECK_REFUSED(emm_array_validate(NULL), EMM_E_INVALID_VALUE, "array is NULL");
}

static void failures(void) {
    emm_array_layout layout;
    int64_t strides[2] = {7, 7};
    emm_array array = typed("<f5");
    memset(&layout, 7, sizeof layout);
    layout.struct_size = sizeof layout;
    CHECK(emm_array_get_layout(&array, &layout, strides) == EMM_E_INVALID_VALUE);
    CHECK(strides[0] == 7 && strides[1] == 7);
    CHECK(layout.itemsize == UINT64_C(0x0707070707070707));
}

const test rule_tests[] = {
    {"an array without strides is C-contiguous", without_strides},
    {"versions 2 and 3 are spoken, others refused", versions},
    {"sizes of a shape are whole, not negative, and fit into memory", shapes},
    {"an array of no dimensions has one element", scalars},
    {"a typestr has byte order, kind and size, and each must be one that there is", typestrs},
    {"an empty array has data 0, and only an empty one", empty_arrays},
    {"the read-only flag is 0 or 1", read_only_flags},
    {"strides in bytes may leave gaps and stand still", given_strides},
    {"negative strides reach below data, not below address 0", negative_strides},
    {"strides that leave all memory are refused", strides_out_of_memory},
    {"a stream is never 0 in version 3, and nothing else in version 2", streams},
    {"a mask is an array whose shape broadcasts, with no mask of its own", masks},
    {"a descr describes exactly the bytes of typestr", descrs},
    {"a descr that contains itself is refused", endless_descrs},
    {"a descr whose parts share their parts is measured or refused in bounded time", shared_descrs},
    {"a short struct and NULL are refused", short_structs},
    {"a refused array leaves the outputs alone", failures},
    {NULL, NULL}};
