// A static Go program that uses ordinary files: `files read FILE` copies a file to standard output, and
// `files write FILE` copies standard input to a file.
package main

import (
	"io"
	"os"
)

func main() {
	var file *os.File
	var err error
	if os.Args[1] == "write" {
		if file, err = os.Create(os.Args[2]); err == nil {
			_, err = io.Copy(file, os.Stdin)
		}
	} else if file, err = os.Open(os.Args[2]); err == nil {
		_, err = io.Copy(os.Stdout, file)
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}
