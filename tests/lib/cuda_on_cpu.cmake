# SPDX-License-Identifier: Apache-2.0
# The kernels of cuda_kernels/ without a GPU: the same files as C++ over cuda_on_cpu.h.  Not under TSan: a fiber
# is no thread.
if(TOKENRING_SANITIZE MATCHES "thread")
  return()
endif()
get_property(sources GLOBAL PROPERTY TR_CUDA_SOURCES)
set(inc ${CMAKE_BINARY_DIR}/include)
file(MAKE_DIRECTORY ${inc}/cudalib)
file(CREATE_LINK ${CMAKE_SOURCE_DIR}/tests/lib ${inc}/cudalib/cudalib SYMBOLIC)

add_library(cuda_on_cpu_flags INTERFACE)
target_compile_features(cuda_on_cpu_flags INTERFACE cxx_std_17)
target_include_directories(cuda_on_cpu_flags INTERFACE ${inc}/cuda_kernels ${inc}/cudalib)
target_link_libraries(cuda_on_cpu_flags INTERFACE tr_flags)
# gcc 12 takes an array that a kernel has set to zeros and hands to a function for zeros behind it too
# (product_few.cu, the sums of a thread).
target_compile_options(cuda_on_cpu_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-ipa-cp>)

set(kernels ${sources})
list(FILTER kernels INCLUDE REGEX "\\.cu$")
set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++")
add_library(cuda_kernels_on_cpu STATIC ${sources})
target_link_libraries(cuda_kernels_on_cpu PUBLIC cuda_on_cpu_flags cpu_kernels base)
