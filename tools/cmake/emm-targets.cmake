# Shared by find_package(emm), FetchContent and add_subdirectory. The includer has set
#   emm_LIBRARY       libemm.so.1
#   emm_INCLUDE_DIR   the folder with emm/emm.h
#   emm_PLUGIN_MAP    a plugin's version script
if(TARGET emm::emm)
  return()
endif()

set(CMAKE_THREAD_PREFER_PTHREAD TRUE)
set(THREADS_PREFER_PTHREAD_FLAG TRUE)
find_package(Threads REQUIRED)

# For programs.
add_library(emm::emm SHARED IMPORTED GLOBAL)
set_target_properties(emm::emm PROPERTIES
  IMPORTED_LOCATION "${emm_LIBRARY}"
  IMPORTED_SONAME libemm.so.1
  INTERFACE_INCLUDE_DIRECTORIES "${emm_INCLUDE_DIR}")

# For plugins: headers only, since emm calls a plugin, which links neither libemm nor a CUDA library.
add_library(emm::plugin INTERFACE IMPORTED GLOBAL)
set_target_properties(emm::plugin PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES "${emm_INCLUDE_DIR}"
  INTERFACE_LINK_LIBRARIES Threads::Threads
  INTERFACE_LINK_OPTIONS "LINKER:--version-script=${emm_PLUGIN_MAP}"
  INTERFACE_LINK_DEPENDS "${emm_PLUGIN_MAP}")

# emm_add_plugin(NAME SOURCES...): the target NAME builds libemm-NAME.so, which EMM_PLUGIN=NAME finds. It exports its
# entry alone: other symbols are hidden, instances of the standard library's templates by the version script.
function(emm_add_plugin name)
  if(NOT name MATCHES "^[a-z0-9][a-z0-9_.-]*$")
    message(FATAL_ERROR "emm_add_plugin: expected a name of a-z, 0-9, '-', '_' and '.', found '${name}'")
  endif()
  if(NOT ARGN)
    message(FATAL_ERROR "emm_add_plugin(${name}): expected source files, found none")
  endif()
  add_library(${name} MODULE ${ARGN})
  set_target_properties(${name} PROPERTIES
    PREFIX lib OUTPUT_NAME emm-${name} SUFFIX .so
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(${name} PRIVATE emm::plugin)
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(C IN_LIST languages)
    target_compile_features(${name} PRIVATE c_std_11)
  endif()
  if(CXX IN_LIST languages)
    target_compile_features(${name} PRIVATE cxx_std_17)
  endif()
endfunction()
