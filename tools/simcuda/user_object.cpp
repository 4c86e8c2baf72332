#include "call.h"
#include "graph.h"
#include "simulator.h"

namespace simcuda {
namespace {

CUresult find_user_object(CUuserObject handle, UserObject *&ret_object) {
    ret_object = sim().user_objects.find(handle);
    if (!ret_object) {
        misuse("user object %p %s", static_cast<void *>(handle),
               sim().user_objects.was(handle) ? "is gone" : "is no user object");
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

} // namespace

CUresult api::user_object_create(CUuserObject *object_out, void *ptr, CUhostFn destroy,
                                 unsigned int initial_refcount, unsigned int flags) {
    if (!object_out || !destroy || initial_refcount == 0 ||
        flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    auto *object = new UserObject{nullptr, ptr, destroy, initial_refcount, {}};
    object->handle = *object_out = sim().user_objects.insert(object);
    return CUDA_SUCCESS;
}

CUresult api::user_object_retain(CUuserObject object, unsigned int count) {
    UserObject *found;
    const CUresult result = find_user_object(object, found);
    if (result != CUDA_SUCCESS || count == 0) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    found->references += count;
    return CUDA_SUCCESS;
}

CUresult api::user_object_release(CUuserObject object, unsigned int count) {
    UserObject *found;
    const CUresult result = find_user_object(object, found);
    if (result != CUDA_SUCCESS || count == 0) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    if (count > found->references) {
        return misuse("%u references are released, and %u are held", count, found->references);
    }
    release(found, count);
    return CUDA_SUCCESS;
}

CUresult api::graph_retain_user_object(CUgraph graph, CUuserObject object, unsigned int count,
                                       unsigned int flags) {
    Graph *holder;
    UserObject *found;
    CUresult result = find_graph(graph, holder);
    result = result == CUDA_SUCCESS ? find_user_object(object, found) : result;
    if (result != CUDA_SUCCESS || count == 0) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    if (!(flags & CU_GRAPH_USER_OBJECT_MOVE)) {
        found->references += count;
    }
    holder->held->objects[found] += count;
    return CUDA_SUCCESS;
}

CUresult api::graph_release_user_object(CUgraph graph, CUuserObject object, unsigned int count) {
    Graph *holder;
    UserObject *found;
    CUresult result = find_graph(graph, holder);
    result = result == CUDA_SUCCESS ? find_user_object(object, found) : result;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const auto held = holder->held->objects.find(found);
    if (held == holder->held->objects.end() || held->second < count || count == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((held->second -= count) == 0) {
        holder->held->objects.erase(held);
    }
    release(found, count);
    return CUDA_SUCCESS;
}

} // namespace simcuda
