# What the distribution provides; scripts/install_dependencies.sh installs all of it.
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(MPI REQUIRED COMPONENTS C)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(yaml-cpp REQUIRED)
find_path(CLI11_INCLUDE CLI/CLI.hpp REQUIRED)
find_path(NLOHMANN_JSON_INCLUDE nlohmann/json.hpp REQUIRED)

# Not by oneDNN's own package file: the distributions' asks for OpenCL's headers, which nothing here needs.
find_path(DNNL_INCLUDE oneapi/dnnl/dnnl.hpp REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
add_library(annulus_dnnl INTERFACE)
target_include_directories(annulus_dnnl SYSTEM INTERFACE ${DNNL_INCLUDE})
target_link_libraries(annulus_dnnl INTERFACE ${DNNL_LIBRARY})
