# what: ruby: File.read, IO modes, each_line, IO.copy_stream, pread, flock, dup, reopen, spawn with
#   files, Find, FileUtils, require
# needs: command ruby
# version: ruby --version
# run
cd "$DATA" || exit 1
cat > text/prog.rb <<'END'
require 'digest'; require 'find'; require 'fileutils'; require 'json'
sum = ->(f) { Digest::MD5.file(f).hexdigest }
Dir['{text,binary,names}/*'].sort.each { |f|
  puts sum[f] + " #{File.size(f)} #{File.binread(f).bytesize}" unless f.end_with?('rb') }
f = File.open('text/numbers')
p f.gets, f.read(10), f.pos, f.pread(5, 100), f.sysseek(0) rescue p $!.class
p f.readlines.size, f.eof?; f.rewind; p f.each_line.first(2), f.dup.read(4), f.fileno == f.to_i
f.seek(-5, IO::SEEK_END); p f.read, f.stat.size; p f.flock(File::LOCK_SH)
p IO.copy_stream('binary/65536', "#{ENV['OUT']}/copied"),
  IO.copy_stream(File.open('text/words'), $stdout, 10, 5), File.foreach('text/table').count,
  IO.readlines('text/one'), File.open('text/long', 'r:utf-8').readchar,
  File.new('text/words', 'rb').readpartial(5), File.open('text/words').ungetc('q')
File.write('text/one', 'new'); p File.read('text/one')
File.open('text/one', 'a') { |a| a << 'more' }; p IO.read('text/one')
File.open('text/one', 'r+') { |a| a.write('N'); a.rewind; p a.read }; File.truncate('text/one', 2)
p File.read('text/one'); File.rename('text/one', 'text/two')
p File.exist?('text/one'), File.read('text/two'); p((File.read('text/absent') rescue $!.message))
FileUtils.cp_r('tree', ENV['OUT']); FileUtils.cp('text/words', 'text/copied')
p FileUtils.cmp('text/words', 'text/copied'), Find.find('.').count
pid = spawn('head -c 9', in: 'text/numbers'); Process.wait pid; io = File.open('text/numbers')
io.sysread(5); pid = spawn('head -c 9', in: io); Process.wait pid
p io.sysread(4), `cat text/two`, IO.popen(['cat', 'text/two'], &:read); $stdin.reopen('text/table')
p gets; pid = fork { p io.sysread(3) }; Process.wait pid; p io.sysread(3)
p [1, 2, 3, 4].map { |n| Thread.new { File.binread('binary/1048576').sum } }.map(&:value)
require './text/other'; p OTHER; load './text/other.rb' if false; p DATA.read
__END__
after the end
END
echo 'OTHER = __FILE__[-8..]' > text/other.rb; ruby text/prog.rb || exit 1
ruby -ne 'print if $. == 2' text/words; ruby -i.bak -pe '$_.upcase!' text/two
cat text/two text/two.bak
exit 0
