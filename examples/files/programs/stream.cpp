// A program with C++ streams: `stream read FILE` copies a file to standard output, and `stream write FILE` copies
// standard input to a file.
#include <fstream>
#include <iostream>
#include <string>

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  if (std::string(argv[1]) == "write") {
    std::ofstream file(argv[2], std::ios::binary);
    file << std::cin.rdbuf();
    return file.good() ? 0 : 1;
  }
  std::ifstream file(argv[2], std::ios::binary);
  if (!file) return 1;
  std::cout << file.rdbuf();
  return 0;
}
