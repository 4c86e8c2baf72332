#pragma once

#include <string>

// device memory
void alloc_case();
void reuse_case();
void zeroed_case();
void wrong_frees_case();
void pitch_case();
void managed_case();
void info_case();

// stream-ordered memory
void async_case();
void pools_case();
void streams_case();
void capture_case();
void graph_figures_case();

// host memory
void host_case();
void register_case();

// questions
void ranges_case();
void after_frees_case();
void attributes_case();
void handles_case();

// contexts, threads, devices
void contexts_case();
void primary_case();
void survivors_case();
void threads_case();
void own_streams_case();
void while_capturing_case();
void host_functions_case();
void green_case();
void passed_on_case();
void after_large_frees_case();
void peers_case();
void device_pools_case();
void pool_access_case();
void own_pools_case();
void ended_pools_case();

// processes; `how` is how a process that they start finds its driver
void before_init_case();
void ipc_case(const std::string &how);
void ipc_child(int requests, int replies);
void fork_case();
void exec_case(const std::string &how);
void exec_child();
