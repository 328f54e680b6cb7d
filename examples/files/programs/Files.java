import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.file.Path;

/** Java: `Files read FILE` copies a file to standard output, `Files write FILE` copies standard input to a file. */
public class Files {
  public static void main(String[] words) throws IOException {
    if (words[0].equals("write")) {
      try (FileOutputStream file = new FileOutputStream(words[1])) {
        System.in.transferTo(file);
      }
    } else {
      try (FileInputStream file = new FileInputStream(Path.of(words[1]).toFile())) {
        file.transferTo(System.out);
      }
    }
    System.out.flush();
  }
}
