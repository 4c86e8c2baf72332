#include "call.h"
#include "graph.h"
#include "simulator.h"

namespace simcuda {
namespace {

UserObject &find_user_object(CUuserObject handle) {
    return find_object(sim().user_objects, handle, "user object");
}

} // namespace

void api::user_object_create(CUuserObject *object_out, void *ptr, CUhostFn destroy,
                             unsigned int initial_refcount, unsigned int flags) {
    expect(object_out && destroy && initial_refcount != 0 &&
           flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    auto *object = new UserObject{nullptr, ptr, destroy, initial_refcount, {}};
    object->handle = *object_out = sim().user_objects.insert(object);
}

void api::user_object_retain(CUuserObject object, unsigned int count) {
    UserObject &found = find_user_object(object);
    expect(count != 0);
    found.references += count;
}

void api::user_object_release(CUuserObject object, unsigned int count) {
    UserObject &found = find_user_object(object);
    expect(count != 0);
    if (count > found.references) {
        refuse(misuse("%u references are released, and %u are held", count, found.references));
    }
    release(&found, count);
}

void api::graph_retain_user_object(CUgraph graph, CUuserObject object, unsigned int count,
                                   unsigned int flags) {
    Graph &holder = find_graph(graph);
    UserObject &found = find_user_object(object);
    expect(count != 0);
    if (!(flags & CU_GRAPH_USER_OBJECT_MOVE)) {
        found.references += count;
    }
    holder.held->objects[&found] += count;
}

void api::graph_release_user_object(CUgraph graph, CUuserObject object, unsigned int count) {
    Graph &holder = find_graph(graph);
    UserObject &found = find_user_object(object);
    const auto held = holder.held->objects.find(&found);
    expect(held != holder.held->objects.end() && held->second >= count && count != 0);
    if ((held->second -= count) == 0) {
        holder.held->objects.erase(held);
    }
    release(&found, count);
}

} // namespace simcuda
