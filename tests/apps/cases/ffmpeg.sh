# what: ffmpeg, ffprobe: decode (framemd5), transcode, seek, concat, image sequences, subtitles,
#   pipes, faststart output
# needs: command ffmpeg; command ffprobe
# heavy: yes
# version: ffmpeg -version
# prepare
mkdir "$DATA/v" && cd "$DATA/v" && ff="ffmpeg -v error -nostdin -threads 1 -fflags +bitexact" &&
  $ff -f lavfi -i testsrc=size=160x120:rate=10:duration=3 -f lavfi -i sine=duration=3 \
    -flags +bitexact -c:v mpeg4 -c:a aac -threads 1 clip.mp4 &&
  $ff -i clip.mp4 -flags +bitexact -c:v mjpeg -c:a pcm_s16le -threads 1 clip.avi &&
  $ff -i clip.mp4 -vframes 8 -flags +bitexact frame%02d.png
printf "file clip.mp4\nfile clip.mp4\n" > list.txt
printf '1\n00:00:00,000 --> 00:00:01,000\nhello\n' > s.srt
# run
cd "$DATA/v" || exit 1
ff() {
  ffmpeg -v error -nostdin -threads 1 "$@" -fflags +bitexact -flags +bitexact -threads 1 \
    -f framemd5 - | grep -v '^#' | cksum
}
for f in clip.mp4 clip.avi file:clip.mp4; do
  ff -i $f; ff -ss 1.5 -i $f -t 0.5
  ffprobe -v error -show_entries stream=codec_name,nb_frames,duration -of csv $f
done
ff -f concat -i list.txt; ff -framerate 5 -i 'frame%02d.png'; ff -pattern_type glob -i 'frame*.png'
ffmpeg -v error -nostdin -i s.srt -f webvtt -; ff -i - < clip.avi; cat clip.avi | ff -i pipe:0
ff -i clip.mp4 -vf scale=80:60 -an
ffmpeg -v error -nostdin -threads 1 -i clip.mp4 -map 0 -c copy -fflags +bitexact \
  -movflags +faststart new.mp4
cksum new.mp4; ff -i new.mp4
ffmpeg -v error -nostdin -y -i clip.avi -threads 1 -c:v mpeg4 -c:a copy -flags +bitexact \
  -fflags +bitexact new.avi
ff -i new.avi; ffmpeg -v error -nostdin -i ../text/one -f null - 2> /dev/null; echo "status $?"
ffmpeg -v quiet -nostdin -i absent.mp4 -f null -; echo "status $?"
exit 0
