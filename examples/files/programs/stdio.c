/* A program with C's stdio: `stdio read FILE` copies a file to standard output, and `stdio write FILE` copies standard
 * input to a file. */
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
  int writes = argc == 3 && strcmp(argv[1], "write") == 0;
  FILE *file = argc == 3 ? fopen(argv[2], writes ? "w" : "r") : NULL;
  if (!file) {
    perror(argc == 3 ? argv[2] : argv[0]);
    return 1;
  }
  FILE *from = writes ? stdin : file, *to = writes ? file : stdout;
  char buffer[4096];
  size_t length;
  while ((length = fread(buffer, 1, sizeof buffer, from)) > 0) fwrite(buffer, 1, length, to);
  return fclose(file) != 0;
}
