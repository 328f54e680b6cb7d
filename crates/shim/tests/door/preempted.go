// Goroutines wait for files while others compute without a pause, so that Go's runtime stops them by signals all the time.
// `preempted FOLDER COUNT` prints the number of bytes in the files `0` to `COUNT - 1` together.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
)

var sum [4]uint64

func main() {
	runtime.GOMAXPROCS(4)
	count, _ := strconv.Atoi(os.Args[2])
	for n := range sum {
		go func() {
			for {
				sum[n]++
			}
		}()
	}
	go func() {
		for {
			runtime.GC()
		}
	}()
	sizes := make(chan int)
	for n := 0; n < count; n++ {
		go func(path string) {
			bytes, err := os.ReadFile(path)
			if err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			sizes <- len(bytes)
		}(fmt.Sprintf("%s/%d", os.Args[1], n))
	}
	all := 0
	for n := 0; n < count; n++ {
		all += <-sizes
	}
	fmt.Println(all)
}
