# what: rust std::fs and std::io: read, BufReader, seek, metadata, copy, read_dir, OpenOptions,
#   threads, Command with files
# needs: command rustc
# version: rustc --version
# ignore: out/*
# heavy: yes
# prepare
cat > "$DATA/prog.rs" <<'END'
use std::{fs, fs::File, io::{prelude::*, BufReader, SeekFrom}, os::unix::fs::{FileExt, MetadataExt},
  process::{Command, Stdio}, thread};
fn sum(b: &[u8]) -> u64 { b.iter().fold(7, |a, x| (a * 31 + *x as u64) % 1_000_000_007) }
fn walk(d: &str, out: &mut Vec<String>) {
  for e in fs::read_dir(d).unwrap() {
    let e = e.unwrap(); let p = e.path().to_str().unwrap().to_string();
    let t = e.file_type().unwrap();
    if t.is_dir() { walk(&p, out) } else if t.is_file() { out.push(p) }
  }
}
fn main() -> std::io::Result<()> {
  let mut files = vec![]; for d in ["text", "binary", "tree"] { walk(d, &mut files) } files.sort();
  for f in &files {
    let b = fs::read(f)?; let m = fs::metadata(f)?;
    println!("{f} {} {} {} {:?}", b.len(), sum(&b), m.len(),
      m.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() < 1_600_000_000);
  }
  let mut f = File::open("text/numbers")?; f.seek(SeekFrom::Start(100))?; let mut b = [0; 10];
  f.read_exact(&mut b)?; f.read_at(&mut b, 5)?;
  println!("{} {} {}", String::from_utf8_lossy(&b), f.stream_position()?, f.metadata()?.mode());
  let mut g = f.try_clone()?; g.read_exact(&mut b)?;
  println!("{} {}", f.stream_position()?, BufReader::new(&f).lines().count());
  println!("{}", fs::copy("binary/65536", std::env::var("OUT").unwrap() + "/copied")?);
  fs::copy("text/words", "text/one")?; println!("{}", fs::read_to_string("text/one")?.len());
  fs::write("text/one", "new")?; println!("{}", fs::read_to_string("text/one")?);
  fs::OpenOptions::new().append(true).open("text/one")?.write_all(b" more")?;
  println!("{}", fs::read_to_string("text/one")?); fs::rename("text/one", "text/two")?;
  println!("{:?} {}", fs::read("text/one").map_err(|e| e.kind()), fs::read_to_string("text/two")?);
  fs::remove_file("text/two")?;
  println!("{:?}", File::open("text/two").map(|_| ()).map_err(|e| e.kind()));
  let out = Command::new("cat").stdin(Stdio::from(File::open("text/no_newline")?)).output()?;
  println!("{}", String::from_utf8_lossy(&out.stdout));
  let t: Vec<_> = (0..4)
    .map(|_| thread::spawn(|| sum(&fs::read("binary/1048576").unwrap()))).collect();
  for x in t { println!("{}", x.join().unwrap()) }
  std::io::copy(&mut File::open("text/one_more").unwrap_or(File::open("text/table")?),
    &mut std::io::stdout())?;
  Ok(())
}
END
cd "$DATA" && rustc -O -o prog prog.rs
# run
cd "$DATA" && ./prog
