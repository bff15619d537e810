# what: java: Files.readAllBytes, streams, FileChannel (map, transferTo, position),
#   RandomAccessFile, locks, walk, copy, class path and jar on the prefix, JIT threads
# needs: command javac; command jar
# heavy: yes
# version: java -version
# ignore: *.class *.jar
# run
cd "$DATA" || exit 1
cat > text/Prog.java <<'END'
import java.io.*; import java.nio.*; import java.nio.channels.*; import java.nio.file.*;
import java.util.*; import java.util.zip.*; import static java.nio.file.StandardOpenOption.*;
public class Prog {
  static String sum(byte[] b) {
    CRC32 c = new CRC32(); c.update(b); return b.length + " " + c.getValue();
  }
  public static void main(String[] a) throws Exception {
    List<Path> files;
    try (var s = Files.walk(Path.of("."))) {
      files = s.filter(Files::isRegularFile).filter(f -> !f.toString().endsWith("class")
          && !f.toString().endsWith("jar")).sorted().toList();
    }
    for (Path f : files) {
      String x = sum(Files.readAllBytes(f)),
          y = sum(new FileInputStream(f.toFile()).readAllBytes());
      try (FileChannel c = FileChannel.open(f)) {
        byte[] m = new byte[(int) c.size()];
        if (m.length > 0) c.map(FileChannel.MapMode.READ_ONLY, 0, m.length).get(m);
        System.out.println(f + " " + x + x.equals(y) + x.equals(sum(m)));
      }
    }
    RandomAccessFile r = new RandomAccessFile("text/numbers", "r"); r.seek(100);
    System.out.println(r.readLine() + r.getFilePointer() + r.length());
    FileChannel c = r.getChannel(); ByteBuffer b = ByteBuffer.allocate(20); c.read(b, 5);
    System.out.println(new String(b.array()) + c.position());
    try (FileLock l = c.lock(0, Long.MAX_VALUE, true)) { System.out.println(l.isShared()); }
    try (FileChannel o = FileChannel.open(Path.of(System.getenv("OUT"), "sent"), CREATE, WRITE)) {
      System.out.println(c.transferTo(0, 1000, o));
    }
    Files.copy(Path.of("binary/65536"), Path.of(System.getenv("OUT"), "copied"));
    Files.copy(Path.of("text/words"), Path.of("text/one"), StandardCopyOption.REPLACE_EXISTING);
    System.out.println(Files.mismatch(Path.of("text/words"), Path.of("text/one")));
    Files.writeString(Path.of("text/one"), "new");
    System.out.println(Files.readString(Path.of("text/one")));
    Files.writeString(Path.of("text/one"), "more", APPEND);
    System.out.println(Files.readAllLines(Path.of("text/one")));
    try (FileChannel w = FileChannel.open(Path.of("text/one"), READ, WRITE)) {
      MappedByteBuffer m = w.map(FileChannel.MapMode.READ_WRITE, 0, 3); m.put(0, (byte) 'X');
      m.force();
    }
    System.out.println(Files.readString(Path.of("text/one")));
    Files.move(Path.of("text/one"), Path.of("text/two"));
    try { Files.readString(Path.of("text/one")); }
    catch (NoSuchFileException e) { System.out.println(e); }
    try (BufferedReader br = Files.newBufferedReader(Path.of("text/table"))) {
      System.out.println(br.readLine() + br.lines().count());
    }
    System.out.println(files.parallelStream().mapToLong(f -> {
      try { return Files.size(f); } catch (IOException e) { return 0; }
    }).sum());
    Process p = new ProcessBuilder("cat").redirectInput(new File("text/no_newline")).start();
    System.out.println(new String(p.getInputStream().readAllBytes()) + p.waitFor());
    System.out.println(new String(Prog.class.getResourceAsStream("words").readAllBytes()).length());
  }
}
END
J='-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xmx128m -XX:-UsePerfData'
javac -J-XX:+UseSerialGC text/Prog.java && java $J -cp text Prog && mv text/two text/one &&
  jar cf text/prog.jar -C text Prog.class -C text words && java $J -cp text/prog.jar Prog | cksum ||
  exit 1
java $J -cp text Absent 2> "$OUT/err"; echo "status $?"
